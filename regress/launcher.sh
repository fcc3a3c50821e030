#!/usr/bin/env bash
# pg_regress runs psql through this: paths of the data and scratch folders, process ids and the device do not reach the
# expected files, nor does the parameter that PostgreSQL 15 and 16 name beside an InitPlan.
set -o pipefail
"$@" 2>&1 | sed -E -e "s#${PYSTACHIO_REGRESS_DATA:?}#<data>#g" -e "s#${PYSTACHIO_REGRESS_SCRATCH:?}#<scratch>#g" -e 's#process [0-9]+#process <pid>#g' -e 's#rows-[0-9a-f]{14}-[0-9a-f]{16}#rows-<number>#g' \
    -e 's#^( *Engine: )(cpu|cuda|emulated)$#\1<device>#' -e 's#^( *InitPlan [0-9]+) \(returns [$0-9,]+\)$#\1#' -e '/^INFO: .* rows of all (tables|files)/d'
