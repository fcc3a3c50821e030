{% snapshot balances %}
{{ config(target_schema=target.schema, unique_key='c_custkey', strategy='check', check_cols=['c_acctbal']) }}
SELECT c_custkey, c_acctbal FROM {{ source('files', 'customer') }} WHERE c_nationkey < 10
{% endsnapshot %}
