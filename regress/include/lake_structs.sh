# Makes a table of Delta Lake whose files have other names for fields than the table: of a.parquet and b.parquet in the folder $1.
set -e
cd "$PYSTACHIO_REGRESS_SCRATCH/$1"
field() { printf '{\\"name\\":\\"%s\\",\\"type\\":%s,\\"nullable\\":true,\\"metadata\\":{\\"delta.columnMapping.physicalName\\":\\"%s\\",\\"delta.columnMapping.id\\":%s}}' "$1" "$2" "$3" "$4"; }
struct() { printf '{\\"type\\":\\"struct\\",\\"fields\\":[%s]}' "$1"; }
mkdir -p _delta_log
fields="$(field city '\"string\"' c 3),$(field zip '\"long\"' n 4),$(field amount '\"decimal(9,2)\"' a 5),$(field day '\"date\"' d 6)"
columns="$(field id '\"long\"' k 1),$(field place "$(struct "$fields")" p 2)"
{
    printf '{"protocol":{"minReaderVersion":2,"minWriterVersion":5}}\n'
    printf '{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{\\"type\\":\\"struct\\",\\"fields\\":[%s]}","partitionColumns":[],"configuration":{"delta.columnMapping.mode":"name","delta.columnMapping.maxColumnId":"6"}}}\n' "$columns"
    for name in a b; do
        printf '{"add":{"path":"%s.parquet","partitionValues":{},"size":%s,"modificationTime":0,"dataChange":true}}\n' "$name" "$(stat -c %s "$name.parquet")"
    done
} > _delta_log/00000000000000000000.json
chmod -R a+rX .
