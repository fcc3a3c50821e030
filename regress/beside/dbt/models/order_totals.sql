{{ config(materialized='table', indexes=[{'columns': ['o_orderkey'], 'unique': True}]) }}
SELECT o.o_orderkey, o.o_custkey, o.o_orderdate, sum(v.value) AS total
FROM {{ source('files', 'orders') }} o JOIN {{ ref('line_values') }} v ON v.l_orderkey = o.o_orderkey
GROUP BY 1, 2, 3
