"""What of the GPU engine and of the exchange can be turned off, and how: the one place that knows the names.

What is turned off is the name of a technique (`pystachio.gpu_disable`) or a setting with its value. A benchmark that turns techniques off
one by one asks the server which of these it has (`known`), and says which it has not: what is named here may be ahead of a build, or
behind it.
"""

from harness.libpq import QueryError

# By name what is turned off. The first one is what all are compared with.
TECHNIQUES = {
    "all on": {},
    "nothing leaves before all is there": {"exchange_overlap": "off"},
    "no gathering before a shuffle": {"exchange_gathering": "off"},
    "one group on its way": {"exchange_groups": "off"},
    "one thread sends": {"exchange_senders": "off"},
    "no keys shared between ranks": {"exchange_filters": "off"},
    "rows narrowed": {"pystachio.gpu_exchange_compression": "on"},
    "rows not narrowed": {"pystachio.gpu_exchange_compression": "off"},
    "no broadcast at run time": {"exchange_broadcast_choice": "off"},
    "heavy keys not split": {"exchange_heavy_keys": "off"},
    "no runtime filters": {"runtime_filters": "off"},
    "readers not bounded": {"regulation": "off"},
    "no readers ahead": {"reader_combining": "off"},
    "no concurrent builds": {"concurrent_builds": "off"},
}

# The steps of the paper's ablation (PystachIO, figures 5 to 8), each with what the ones before have: all rows are there before the first
# leaves, in blocks as they come; in blocks of the size that is best for the network; chunk by chunk beside what they come from.
# `deferred`, payload columns only after the join, is not among them: a plan has no operator that fetches columns by row from another rank.
_ONE_AFTER_ANOTHER = {"exchange_overlap": "off", "exchange_groups": "off", "exchange_senders": "off"}
ABLATION = {
    "blocking": {**_ONE_AFTER_ANOTHER, "exchange_gathering": "off"},
    "tuned": _ONE_AFTER_ANOTHER,
    "chunked": {},
}


def is_technique(name):
    """Whether a name is one of `pystachio.gpu_disable`, not a setting."""
    return "." not in name


def statements(settings):
    """What a session runs to have these settings."""
    disabled = [name for name in settings if is_technique(name)]
    return ([f"SET pystachio.gpu_disable = '{', '.join(disabled)}'"] if disabled else []) + \
        [f"SET {name} = '{value}'" for name, value in settings.items() if not is_technique(name)]


def techniques(session):
    """The names that the server's `pystachio.gpu_disable` knows: it lists them where it does not know one."""
    try:
        session.run("SET pystachio.gpu_disable = '?'")
    except QueryError as error:
        return error.hint.removeprefix("Name some of: ").removesuffix(".").split(", ") if error.hint else []
    return []


def known(session, steps):
    """Of steps (what is turned off by name) those that the server has all of, and of the others what it has not."""
    there = {row[0] for row in session.run("SELECT name FROM pg_settings WHERE name LIKE 'pystachio.%'").rows} | set(techniques(session))
    missing = {name: [setting for setting in settings if setting not in there] for name, settings in steps.items()}
    return ({name: settings for name, settings in steps.items() if not missing[name]},
            {name: settings for name, settings in missing.items() if settings})
