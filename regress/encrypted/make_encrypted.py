#!/usr/bin/env python3
"""Writes encrypted Parquet files, and keys.sql with the keys that only their writers know.

usage: make_encrypted.py, with pyarrow 26, DuckDB 2.0 (scripts/writers.sh) and cryptography

All files have the same 300 rows, which `sql/scan_encrypted.sql` makes by itself: `id` from 1 to 300, and columns that follow from it.

- gcm, gcm_192, gcm_256: encrypted footers, one key of 128, 192 and 256 bits; gcm_v2: pages of version 2, Zstandard
- ctr, ctr_192, ctr_256: the same with AES_GCM_CTR_V1, and checksums of pages
- plain_footer, plain_footer_ctr: footers that are signed
- prefix_stored, prefix_supplied: AAD prefixes
- kms: keys of a KMS, wrapped twice; `name` and `amount` have the key k1, `day` has k2, `id` is plain
- kms_single: the same, wrapped once, with a plain footer
- duckdb: as DuckDB writes them
"""

import base64
import datetime
import decimal
import os
import pathlib

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

HERE = pathlib.Path(__file__).parent
ROWS = 300
KEYS = {16: b"0123456789012345", 24: b"012345678901234567890123", 32: b"01234567890123456789012345678901"}
MASTER_KEYS = {"kf": b"master-of-footer", "k1": b"master-of-first.", "k2": b"master-of-second"}


def table():
    numbers = range(1, ROWS + 1)
    return pa.table({
        "id": pa.array(numbers, pa.int32()),
        "name": pa.array([None if n % 5 == 0 else f"name {n % 7}" for n in numbers], pa.string()),
        "amount": pa.array([decimal.Decimal(n * 125) / 100 for n in numbers], pa.decimal128(9, 2)),
        "day": pa.array([datetime.date(2024, 1, 1) + datetime.timedelta(days=n) for n in numbers], pa.date32()),
        "place": pa.array([{"city": f"city {n % 3}", "zip": n} for n in numbers],
                          pa.struct([("city", pa.string()), ("zip", pa.int32())])),
    })


class Kms(pe.KmsClient):
    """A KMS in memory, which wraps keys as parquet-java's LocalWrapKmsClient does, and notes them."""

    wrapped = []

    def __init__(self, _configuration):
        pe.KmsClient.__init__(self)

    def wrap_key(self, key_bytes, master_key_identifier):
        self.wrapped.append((master_key_identifier, key_bytes))
        nonce = os.urandom(12)
        sealed = AESGCM(MASTER_KEYS[master_key_identifier]).encrypt(nonce, key_bytes, master_key_identifier.encode())
        return base64.b64encode(nonce + sealed)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        raise NotImplementedError


def write(name, properties, **options):
    options = {"row_group_size": 100, "data_page_size": 400, "write_batch_size": 20, "write_page_index": True} | options
    pq.write_table(table(), HERE / f"{name}.parquet", encryption_properties=properties, **options)


def direct(name, key_bytes=16, options=None, **properties):
    write(name, pe.create_encryption_properties(footer_key=KEYS[key_bytes], **properties), **(options or {}))


def with_kms(name, **configuration):
    factory = pe.CryptoFactory(Kms)
    columns = {"k1": ["name", "amount"], "k2": ["day", "place.zip"]}
    configuration = pe.EncryptionConfiguration(footer_key="kf", column_keys=columns, **configuration)
    write(name, factory.file_encryption_properties(pe.KmsConnectionConfig(), configuration))


def main():
    for key_bytes, suffix in ((16, ""), (24, "_192"), (32, "_256")):
        direct(f"gcm{suffix}", key_bytes)
        direct(f"ctr{suffix}", key_bytes, {"write_page_checksum": True}, encryption_algorithm="AES_GCM_CTR_V1")
    direct("gcm_v2", options={"data_page_version": "2.0", "compression": "zstd"})
    direct("plain_footer", plaintext_footer=True)
    direct("plain_footer_ctr", plaintext_footer=True, encryption_algorithm="AES_GCM_CTR_V1")
    direct("prefix_stored", aad_prefix=b"the table")
    direct("prefix_supplied", aad_prefix=b"the table", store_aad_prefix=False)
    with_kms("kms")
    encryption_keys = [(name, key) for name, key in Kms.wrapped if name == "kf"]
    Kms.wrapped.clear()
    with_kms("kms_single", double_wrapping=False, plaintext_footer=True)
    keys_of_name = [key for name, key in Kms.wrapped if name == "k1"]
    connection = duckdb.connect()
    # The library for writing is an extension that is fetched; the other one writes the same, with weaker random numbers.
    connection.execute("SET force_mbedtls_unsafe = 'true'; SET threads = 1")
    connection.execute(f"PRAGMA add_parquet_key('key', '{KEYS[16].decode()}')")
    connection.register("source", table())
    connection.execute(f"COPY source TO '{HERE / 'duckdb.parquet'}' (FORMAT parquet, ENCRYPTION_CONFIG {{footer_key: 'key'}})")
    lines = ["-- Written by make_encrypted.py: keys of files of which only the writers know."]
    lines.append(f"\\set key_of_footers {encryption_keys[0][1].hex()}")
    lines.append(f"\\set key_of_name {keys_of_name[0].hex()}")
    lines.append(f"\\set key_of_amount {keys_of_name[1].hex()}")
    (HERE / "keys.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
