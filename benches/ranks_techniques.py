"""What of the exchange can be turned off, and how: the one place that knows the settings' names.

A benchmark that turns techniques off one by one asks the server which of these settings it has (`known`), and says which it has
not: what is named here may be ahead of a build, or behind it.
"""

# By name what is turned off by which settings of a session. The first one is what all are compared with.
TECHNIQUES = {
    "all on": {},
    "nothing leaves before all is there": {"pystachio.gpu_exchange_overlap": "off"},
    "no gathering before a shuffle": {"pystachio.gpu_exchange_gathering": "off"},
    "one group on its way": {"pystachio.gpu_exchange_groups": "1"},
    "one thread sends": {"pystachio.gpu_exchange_senders": "1"},
    "no keys shared between ranks": {"pystachio.gpu_exchange_filters": "off"},
    "rows narrowed": {"pystachio.gpu_exchange_compression": "on"},
    "rows not narrowed": {"pystachio.gpu_exchange_compression": "off"},
    "no broadcast at run time": {"pystachio.gpu_exchange_broadcast_choice": "off"},
    "heavy keys not split": {"pystachio.gpu_exchange_heavy_keys": "off"},
    "no runtime filters": {"pystachio.gpu_runtime_filters": "off"},
    "no chunks": {"pystachio.gpu_chunking": "off"},
    "readers not bounded": {"pystachio.gpu_regulation": "off"},
    "no readers ahead": {"pystachio.gpu_reader_combining": "off"},
    "no concurrent builds": {"pystachio.gpu_concurrent_builds": "off"},
}

# The steps of the paper's ablation (PystachIO, figures 5 to 8), each with what the ones before have: all rows are there before the first
# leaves, in blocks as they come; in blocks of the size that is best for the network; chunk by chunk beside what they come from.
# `deferred`, payload columns only after the join, is not among them: a plan has no operator that fetches columns by row from another rank.
_ONE_AFTER_ANOTHER = {"pystachio.gpu_exchange_overlap": "off", "pystachio.gpu_exchange_groups": "1", "pystachio.gpu_exchange_senders": "1"}
ABLATION = {
    "blocking": {**_ONE_AFTER_ANOTHER, "pystachio.gpu_exchange_gathering": "off"},
    "tuned": _ONE_AFTER_ANOTHER,
    "chunked": {},
}


def statements(settings):
    """What a session runs to have these settings."""
    return [f"SET {name} = '{value}'" for name, value in settings.items()]


def known(session, steps):
    """Of steps (settings by name) those whose settings the server has, and of the others the settings that it has not."""
    there = {row[0] for row in session.run("SELECT name FROM pg_settings WHERE name LIKE 'pystachio.%'").rows}
    missing = {name: [setting for setting in settings if setting not in there] for name, settings in steps.items()}
    return ({name: settings for name, settings in steps.items() if not missing[name]},
            {name: settings for name, settings in missing.items() if settings})
