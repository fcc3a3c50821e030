"""Tables of random rows as Parquet, for joins: a build side with different keys, and a probe side of which a share finds one.

    row number ─► k: build (row × PRIME) mod rows              each of 0 … rows - 1 once, in no order
                     probe random(row) mod (rows / hit ratio)  that share is below the build side's rows
               ─► v1, v2, …: random(row + column)              which no encoding makes smaller

All columns are 64-bit integers without NULL, plain and not compressed: what is measured is not decoding. The same arguments give the same
rows, whatever the number of files. Needs pyarrow, and no numpy.

Source: random numbers by position as in SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

import concurrent.futures
import pathlib
import shutil

import pyarrow
import pyarrow.compute
import pyarrow.parquet

# Larger than any table has rows, so that it shares no factor with their number; their product fits in 63 bits.
PRIME = 2_654_435_761
ROWS_MAX = 1 << 31
# A row group of one column is as large as what a GPU decodes at once is worth.
ROW_GROUP_ROWS = 1 << 21
# So that each rank has row groups of its own of a small table too.
ROW_GROUPS_MIN = 8
COLUMN_BYTES = 8
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _unsigned(value):
    return pyarrow.scalar(value, pyarrow.uint64())


def _numbers(first, count):
    """`count` row numbers from `first` on."""
    counted = pyarrow.compute.cumulative_sum(pyarrow.repeat(_unsigned(1), count))
    return pyarrow.compute.add(counted, _unsigned(first - 1)) if first else pyarrow.compute.subtract(counted, _unsigned(1))


def _mixed(numbers, shift, factor=None):
    mixed = pyarrow.compute.bit_wise_xor(numbers, pyarrow.compute.shift_right(numbers, _unsigned(shift)))
    return mixed if factor is None else pyarrow.compute.multiply(mixed, _unsigned(factor))


def _random(numbers, stream):
    """A random number of 63 bits for each number; another one in each stream."""
    numbers = pyarrow.compute.multiply(pyarrow.compute.add(numbers, _unsigned((stream + 1) << 40)), _unsigned(_GAMMA))
    mixed = _mixed(_mixed(_mixed(numbers, 30, _FIRST), 27, _SECOND), 31)
    return pyarrow.compute.shift_right(mixed, _unsigned(1))


def _modulo(numbers, divisor):
    quotients = pyarrow.compute.divide(numbers, _unsigned(divisor))
    return pyarrow.compute.subtract(numbers, pyarrow.compute.multiply(quotients, _unsigned(divisor)))


def build_keys(numbers, build_rows):
    """Keys of rows of the build side."""
    return _modulo(pyarrow.compute.multiply(numbers, _unsigned(PRIME)), build_rows)


def probe_keys(numbers, build_rows, hit_ratio):
    """Keys of rows of the probe side."""
    return _modulo(_random(numbers, 0), round(build_rows / hit_ratio))


class Side:
    """One table: how many rows and columns, and its keys from row numbers. `stream` tells its values from those of others."""

    def __init__(self, name, rows, columns, keys, stream):
        if not 0 < rows < ROWS_MAX:
            raise ValueError(f"table {name} can't have {rows} rows: from 1 to {ROWS_MAX - 1}")
        self.name, self.rows, self.columns, self.keys, self.stream = name, rows, columns, keys, stream

    @property
    def bytes(self):
        """Of all values; files are hardly larger."""
        return self.rows * self.columns * COLUMN_BYTES

    @property
    def row_group_rows(self):
        return max(1, min(ROW_GROUP_ROWS, -(-self.rows // ROW_GROUPS_MIN)))

    def table(self, first, count):
        """Rows from `first` on, as Arrow."""
        numbers = _numbers(first, count)
        columns = [self.keys(numbers)] + [_random(numbers, self.stream + place) for place in range(1, self.columns)]
        fields = [pyarrow.field(name, pyarrow.int64(), nullable=False) for name in self.names()]
        return pyarrow.Table.from_arrays([column.cast(pyarrow.int64()) for column in columns], schema=pyarrow.schema(fields))

    def names(self):
        """Its columns: the key, and values."""
        return ["k"] + [f"v{place}" for place in range(1, self.columns)]


def sides(build_rows, probe_rows, columns, hit_ratio):
    """Both tables of a join."""
    return (Side("build", build_rows, columns, lambda numbers: build_keys(numbers, build_rows), 0),
            Side("probe", probe_rows, columns, lambda numbers: probe_keys(numbers, build_rows, hit_ratio), 1000))


def _write_file(side, path, groups):
    """Writes row groups, by their first rows and lengths, into a file."""
    with pyarrow.parquet.ParquetWriter(path, side.table(0, 1).schema, compression="none", use_dictionary=False) as writer:
        for first, count in groups:
            writer.write_table(side.table(first, count), row_group_size=count)


def write(side, folder, threads):
    """Writes a table into files of a folder of its name, some at once. What is there already is replaced.

    Errors: OSError with the folder where there is no room for it, before anything is written."""
    folder = pathlib.Path(folder) / side.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    free = shutil.disk_usage(folder).free
    if free < 1.1 * side.bytes:
        raise OSError(f"{folder}: table {side.name} takes {side.bytes / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free")
    step = side.row_group_rows
    groups = [(first, min(step, side.rows - first)) for first in range(0, side.rows, step)]
    file_count = min(threads, len(groups))
    with concurrent.futures.ThreadPoolExecutor(file_count) as pool:
        written = [pool.submit(_write_file, side, folder / f"part-{place:03}.parquet", groups[place::file_count])
                   for place in range(file_count)]
        for future in written:
            future.result()
    for file in folder.iterdir():
        file.chmod(0o644)
    return folder
