{{ config(materialized='incremental', unique_key='month') }}
SELECT date_trunc('month', l_shipdate)::date AS month, count(*) AS lines, sum(value) AS value FROM {{ ref('line_values') }}
{% if is_incremental() %}
WHERE l_shipdate >= (SELECT max(month) FROM {{ this }})
{% else %}
WHERE l_shipdate < '1997-03-10'
{% endif %}
GROUP BY 1
