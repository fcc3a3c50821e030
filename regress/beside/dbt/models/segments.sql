{{ config(materialized='view') }}
SELECT c.c_mktsegment, count(*) AS orders, sum(t.total) AS total
FROM {{ source('files', 'customer') }} c JOIN {{ ref('order_totals') }} t ON t.o_custkey = c.c_custkey
GROUP BY 1
