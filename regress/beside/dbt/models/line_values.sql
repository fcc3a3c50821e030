{{ config(materialized='ephemeral') }}
SELECT l_orderkey, l_shipdate, l_extendedprice * (1 - l_discount) AS value FROM {{ source('files', 'lineitem') }}
