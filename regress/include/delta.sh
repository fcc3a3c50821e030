# Makes tables of Delta Lake of the files t1 to t3 of the data folder, by hand: folder `delta` has good ones, `delta_bad` others.
set -e
cd "$PYSTACHIO_REGRESS_DATA"
rm -rf delta delta_bad
mkdir -p delta delta_bad

# commit TABLE VERSION ACTION…: writes a version's commit, of a day of 2026.
commit() {
    log=$1/_delta_log/$(printf '%020d' "$2").json
    mkdir -p "$1/_delta_log"
    day=$(($2 + 1))
    shift 2
    printf '%s\n' "$@" > "$log"
    touch -d "2026-01-0$day 12:00 UTC" "$log"
}

schema() {
    printf '{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{\\"type\\":\\"struct\\",\\"fields\\":[%s]}","partitionColumns":[%s],"configuration":{}}}' "$1" "$2"
}

field() { printf '{\\"name\\":\\"%s\\",\\"type\\":\\"%s\\",\\"nullable\\":%s,\\"metadata\\":{}}' "$1" "$2" "$3"; }

# add PATH VALUE STATISTICS [MORE]
add() { printf '{"add":{"path":"%s","partitionValues":{"part":%s},"size":1,"modificationTime":0,"dataChange":true,"stats":"%s"%s}}' "$1" "$2" "$3" "${4:-}"; }

protocol='{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}'
vectors='{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}'
columns="$(field id integer false),$(field a integer true),$(field c string true),$(field part date true)"
metadata=$(schema "$columns" '"part"')
first='{\"numRecords\":120,\"minValues\":{\"id\":1},\"maxValues\":{\"id\":120}}'
full='{\"numRecords\":120,\"minValues\":{\"id\":1},\"maxValues\":{\"id\":120},\"nullCount\":{\"id\":0}}'

# The folder says another day than the log, which counts.
mkdir -p "delta/t/part=1999-01-01"
cp t1.parquet "delta/t/part=1999-01-01/a 1.parquet"
cp t2.parquet t3.parquet delta/t/
cp t1.parquet delta/t/late.parquet
commit delta/t 0 "$protocol" "$metadata" "$(add 'part=1999-01-01/a%201.parquet' '"2024-02-29"' "$first")"
commit delta/t 1 "$(add t2.parquet null '{}')" "$(add late.parquet '"2025-01-01"' "$full")"
commit delta/t 2 '{"remove":{"path":"part=1999-01-01/a%201.parquet","dataChange":true}}' "$(add t3.parquet '"2024-02-29"' '{}')" \
    '{"remove":{"path":"late.parquet","dataChange":true}}'
mkdir -p delta/plain
cp t1.parquet delta/plain/

# A row is NULL in a column that its file does not have; a table without files has columns.
mkdir -p delta/wider
cp t1.parquet delta/wider/
commit delta/wider 0 "$protocol" "$(schema "$columns,$(field later 'decimal(10,2)' true),$(field strange void true)" '"part"')" "$(add t1.parquet null '{}')"
commit delta/empty 0 "$protocol" "$metadata"

# Rows 2, 3, 60 to 62 and 119 of a file are deleted.
mkdir -p delta/vector
cp t1.parquet delta/vector/
dv='"storageType":"i","pathOrInlineDv":"^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0SSr5jodIAj]/^b","sizeInBytes":44,"cardinality":6'
commit delta/vector 0 "$vectors" "$metadata" "$(add t1.parquet null "$first" ",\"deletionVector\":{$dv}")"

# Logs that are not what they should be.
bad() {
    mkdir -p "delta_bad/$1"
    cp t1.parquet "delta_bad/$1/"
}
for name in gap cut feature cardinality beyond away gone nothing lying checkpoint; do bad "$name"; done
commit delta_bad/gap 0 "$protocol" "$metadata"
commit delta_bad/gap 2 "$(add t1.parquet null '{}')"
commit delta_bad/cut 0 "$protocol" "$metadata" '{"add":{"path":"t1.par'
commit delta_bad/feature 0 '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors","catalogManaged"]}}' "$metadata"
commit delta_bad/cardinality 0 "$vectors" "$metadata" "$(add t1.parquet null '{}' ",\"deletionVector\":{${dv%6}5}")"
far_dv=$(python3 - <<'P'
import struct
Z = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
data = struct.pack("<IQIIIHHIH", 1681511377, 1, 0, 12346, 1, 0, 0, 16, 500)
padded = data + b"\0" * (-len(data) % 4)
print("".join(Z[n // 85**p % 85] for (n,) in struct.iter_unpack(">I", padded) for p in (4, 3, 2, 1, 0)), len(data), end="")
P
)
commit delta_bad/beyond 0 "$vectors" "$metadata" "$(add t1.parquet null '{}' ",\"deletionVector\":{\"storageType\":\"i\",\"pathOrInlineDv\":\"${far_dv% *}\",\"sizeInBytes\":${far_dv#* },\"cardinality\":1}")"
commit delta_bad/away 0 "$protocol" "$metadata" "$(add 's3://bucket/t1.parquet' null '{}')"
commit delta_bad/gone 0 "$protocol" "$metadata" "$(add t9.parquet null '{}')"
mkdir -p delta_bad/nothing/_delta_log
commit delta_bad/lying 0 "$protocol" "$(schema "$(field id integer false),$(field absent integer false)" '')" "$(add t1.parquet null '{}')"
mkdir -p delta_bad/checkpoint/_delta_log
cp t1.parquet delta_bad/checkpoint/_delta_log/00000000000000000003.checkpoint.parquet
chmod -R a+rX delta delta_bad
