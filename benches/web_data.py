"""Rows of the web workload: page views of one month in one wide table, as counters of web sites collect them.

- Every value is a hash of the row's number, of its visit or of its user, so files are the same on every host, and a part of
  the rows can be made without those before it.
- Ranks of users, sites, pages, phrases and words are log-uniform, which is Zipf's law with exponent 1.
- Texts are made once for each distinct key of a batch.
- Rows ascend in time but for two hours. Sixteen visits overlap in every 64 rows.

Deliberately absent: names of hosts that exist; numpy, which hosts with GPUs may lack.
"""

import math
import zlib

import pyarrow
import pyarrow.compute as compute

# 2025-03-01, in seconds of Unix time.
START_S = 1_740_787_200
SPAN_S = 31 * 86_400
LATE_S = 7_200
BATCH_ROWS = 122_880
SITES, PAGES_BITS, REGIONS, MODELS = 5_000, 20, 5_000, 160
# Traffic sources, in hundredths of the rows.
DIRECT, INTERNAL, SEARCH, ADVERTISED, LINKED, SOCIAL, MAIL, UNKNOWN = 0, 1, 2, 3, 4, 5, 6, -1
SOURCES = [DIRECT] * 25 + [INTERNAL] * 35 + [SEARCH] * 20 + [ADVERTISED] * 5 + [LINKED] * 10 + [SOCIAL] * 3 + [MAIL, UNKNOWN]
ENGINES = ["seek", "finder", "lookup", "ask", "globe", "compass", "index", "sift"]
VENDORS = ["Aurora", "Birch", "Cobalt", "Delta", "Ember", "Fjord", "Granite", "Harbor"]
COUNTRIES = ["DE", "US", "IN", "BR", "JP", "FR", "PL", "TR", "ES", "IT", "KR", "UA"]
WIDTHS = [1920, 1366, 1536, 390, 412, 1440, 2560, 360, 1280, 768, 1600, 3840]
HEIGHTS = [1080, 768, 864, 844, 915, 900, 1440, 800, 720, 1024, 900, 2160]
SYSTEMS = ["Windows NT 10.0; Win64; x64", "Linux; Android 14", "iPhone; CPU iPhone OS 17_4 like Mac OS X", "Macintosh; Intel Mac OS X 10_15_7",
           "X11; Linux x86_64", "Linux; Android 11", "X11; CrOS x86_64 14541.0.0"]
COMMON_WORDS = ["market", "news", "garden", "weather", "recipe", "travel", "music", "house", "school", "bicycle", "camera", "forum", "water",
                "winter", "lantern", "museum", "harbour", "kitchen"]
LATIN = ["ka", "lo", "mi", "ten", "ra", "so", "vel", "ni", "dor", "pa", "shi", "gu", "be", "tra", "kol", "zen"]
ACCENTED = ["grö", "ße", "ké", "lä", "ñan", "čer", "ōka", "øst", "ça", "ülm", "žit", "rå"]
CYRILLIC = ["ка", "ло", "ми", "тен", "ра", "со", "вел", "ни", "дор", "па", "ши", "гу", "бе", "тра", "кол", "зен"]


def mixed(keys, name):
    """64 well-mixed bits of each key, other ones for each name (the finalizer of splitmix64, which wraps)."""
    value = compute.add(keys.view(pyarrow.uint64()), bits((zlib.crc32(name.encode()) << 32) + 0x9E3779B97F4A7C15))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = compute.multiply(compute.bit_wise_xor(value, compute.shift_right(value, bits(shift))), bits(factor))
    return compute.bit_wise_xor(value, compute.shift_right(value, bits(31)))


def bits(number):
    return pyarrow.scalar(number % 2**64, pyarrow.uint64())


def identity(keys, name):
    """A signed 64-bit number of each key."""
    return mixed(keys, name).view(pyarrow.int64())


def number_of(keys, name):
    """A number below 2^53 of each key."""
    return compute.shift_right(mixed(keys, name), bits(11)).view(pyarrow.int64())


def remainder(values, limit):
    return compute.subtract(values, compute.multiply(compute.divide(values, limit), limit))


def below(keys, name, limit):
    return remainder(number_of(keys, name), limit)


def skewed(keys, name, limit):
    """Ranks from 0 to `limit` - 1, those of low numbers more often: log-uniform."""
    share = compute.multiply(number_of(keys, name).cast(pyarrow.float64()), 2.0**-53)
    rank = compute.floor(compute.exp(compute.multiply(share, math.log(limit + 1.0)))).cast(pyarrow.int64())
    return compute.min_element_wise(compute.subtract(rank, 1), limit - 1)


def one_in(keys, name, count):
    return compute.equal(below(keys, name, count), 0)


def plus(values, *others):
    for other in others:
        values = compute.add(values, other)
    return values


def times(values, factor):
    return compute.multiply(values, factor)


def any_of(one, *others):
    for other in others:
        one = compute.or_(one, other)
    return one


def where(condition, values, others=0):
    return compute.if_else(condition, values, others)


def made_words(syllables, name, count):
    numbers = pyarrow.array(range(count))
    parts = [chosen(syllables, below(numbers, f"{name}/{place}", len(syllables))) for place in range(4)]
    lengths = plus(below(numbers, f"{name}/length", 3), 2)
    return joined("", *(where(compute.less(place, lengths), part, None) for place, part in enumerate(parts))).to_pylist()


def chosen(values, index, condition=None):
    """values[index], NULL where the condition is false."""
    return pyarrow.array(values).take(index if condition is None else where(condition, index, None))


def joined(separator, *parts):
    """Texts joined row by row; NULL parts are left out."""
    return compute.binary_join_element_wise(*parts, separator, null_handling="skip")


LATIN_WORDS = pyarrow.array(COMMON_WORDS + made_words(LATIN, "latin", 3_000))
TITLE_WORDS = [LATIN_WORDS, pyarrow.array(made_words(LATIN + ACCENTED, "accented", 3_000)), pyarrow.array(made_words(CYRILLIC, "cyrillic", 3_000))]


def decimals(numbers):
    return numbers.cast(pyarrow.string())


def hexadecimals(keys, name):
    """16 hexadecimal digits of each key."""
    return pyarrow.array([f"{value:016x}" for value in mixed(keys, name).to_pylist()], pyarrow.string())


def phrases(keys, name, least, most, words=LATIN_WORDS, separator=" "):
    """`least` to `most` words for each key."""
    counts = plus(below(keys, f"{name}/count", most - least + 1), least)
    return joined(separator, *(chosen(words, skewed(keys, f"{name}/{place}", len(words)), compute.less(place, counts)) for place in range(most)))


def texts_of(keys, make):
    """What `make` makes of the distinct keys, for each key."""
    encoded = keys.dictionary_encode()
    return make(encoded.dictionary).take(encoded.indices)


def hosts(sites):
    return joined("", chosen(["https://", "http://"], where(one_in(sites, "scheme", 5), 1)), chosen(["www.", ""], below(sites, "www", 2)),
                  phrases(sites, "host", 1, 2, separator="-"), decimals(sites), chosen([".example", ".test", ".shop.example"], below(sites, "domain", 3)))


def urls(pages):
    """Addresses of pages: the page's number in its lower bits, its site above. 0 is a page whose address was not collected."""
    sites = compute.shift_right(pages, PAGES_BITS)
    number = decimals(compute.bit_wise_and(pages, (1 << PAGES_BITS) - 1))
    query = joined("", "?id=", number, "&sort=", chosen(LATIN_WORDS, below(pages, "sort", 40)))
    session = joined("", "#session=", *(texts_of(where(one_in(pages, "long", 20), pages), lambda keys, part=part: hexadecimals(keys, f"session {part}"))
                                        for part in range(3)))
    path = joined("", texts_of(sites, hosts), "/", chosen(LATIN_WORDS, skewed(pages, "section", 60)), "/", phrases(pages, "slug", 1, 7, separator="-"), "-",
                  number, chosen([".html", "/", "", ".php"], below(pages, "suffix", 4)), where(one_in(pages, "query", 3), query, ""),
                  where(one_in(pages, "long", 20), session, ""))
    return where(compute.equal(pages, 0), "", path)


def titles(pages):
    sites = compute.shift_right(pages, PAGES_BITS)
    text = compute.choose(below(sites, "language", 3), *(phrases(pages, "title", 2, 9, words) for words in TITLE_WORDS))
    return where(one_in(pages, "untitled", 7), "", joined(" | ", text, phrases(sites, "host", 1, 2)))


def search_phrases(keys):
    """The phrase of each rank; 0 is none."""
    text = where(one_in(keys, "other letters", 4), phrases(keys, "search", 1, 6, TITLE_WORDS[2]), phrases(keys, "search", 1, 6))
    return where(compute.equal(keys, 0), "", text)


def referrers(keys):
    """Addresses of referring pages: a page's key; below zero, -1 - (16 * phrase + search engine); 0 is none."""
    is_search = compute.less(keys, 0)
    searched = where(is_search, compute.subtract(-1, keys))
    phrase = compute.replace_substring(texts_of(compute.shift_right(searched, 4), search_phrases), " ", "+")
    engine = chosen(ENGINES, remainder(compute.bit_wise_and(searched, 15), len(ENGINES)))
    return where(is_search, joined("", "https://", engine, ".example/search?q=", phrase), urls(where(is_search, 0, keys)))


def agents(keys):
    """Texts of user agents."""
    return joined("", "Mozilla/5.0 (", chosen(SYSTEMS, below(keys, "system", len(SYSTEMS))), ") Engine/", decimals(plus(below(keys, "engine", 90), 500)),
                  " Browser/", decimals(plus(below(keys, "major", 60), 80)), ".0.", decimals(below(keys, "build", 6_000)),
                  chosen(["", " Mobile", " Safari/537.36"], below(keys, "kind", 3)))


def user_of(rank):
    """Id of the user of a rank, which queries name."""
    return identity(pyarrow.array([rank]), "user id")[0].as_py()


def page_hash_of(site, number):
    """Hash of a page's address."""
    return identity(pyarrow.array([site << PAGES_BITS | number]), "page")[0].as_py()


def small(values):
    return values.cast(pyarrow.int16())


def whole(values, condition=None):
    return (values if condition is None else where(condition, values, None)).cast(pyarrow.int32())


def flag(keys, name, count):
    """1 for one of `count` keys, else 0."""
    return small(where(one_in(keys, name, count), 1))


def moments(seconds):
    """Moments so many seconds after the first one."""
    return times(plus(seconds, START_S), 1_000_000).cast(pyarrow.timestamp("us"))


def batch(first, count, rows):
    """Rows `first` to `first + count` of `rows`, as an Arrow record batch."""
    n = pyarrow.array(range(first, first + count))
    visit = plus(times(compute.divide(n, 64), 16), below(n, "visit", 16))
    user_rank = skewed(visit, "user", max(1_000, rows * 2))
    site = skewed(visit, "site", SITES)
    page = where(one_in(n, "no address", 400), 0, plus(times(site, 1 << PAGES_BITS), skewed(n, "page", 1 << 12)))
    source = chosen(SOURCES, below(n, "source", 100))
    is_search, is_internal, is_ad, is_link, is_social = (compute.equal(source, kind) for kind in (SEARCH, INTERNAL, ADVERTISED, LINKED, SOCIAL))
    has_phrase = compute.and_(is_search, compute.less(below(n, "has phrase", 100), 65))
    phrase_rank = where(has_phrase, plus(skewed(n, "phrase", max(1_000, rows)), 1))
    engine = where(is_search, plus(skewed(n, "search engine", len(ENGINES)), 1))
    other_site = skewed(n, "other site", SITES)
    referrer = where(is_search, compute.subtract(-1, plus(times(phrase_rank, 16), engine)),
                     where(is_internal, plus(times(site, 1 << PAGES_BITS), skewed(n, "referring page", 1 << 12)),
                           where(any_of(is_ad, is_link, is_social), plus(times(other_site, 1 << PAGES_BITS), skewed(n, "referring page", 1 << 10)))))
    has_referring_page = compute.greater(referrer, 0)
    second = plus(compute.divide(times(n, SPAN_S), rows), below(n, "late", LATE_S))
    agent = skewed(user_rank, "agent", 2_000)
    is_mobile = compute.less(below(user_rank, "mobile", 10), 3)
    model = where(is_mobile, plus(skewed(user_rank, "model", MODELS), 1))
    screen = skewed(user_rank, "screen", len(WIDTHS))
    width, height = chosen(WIDTHS, screen), chosen(HEIGHTS, screen)
    is_campaign = one_in(visit, "campaign", 30)
    is_order = one_in(n, "order", 150)
    is_event = one_in(n, "goal", 25)
    model_names = [""] + [f"{VENDORS[number % len(VENDORS)]} {'ABCDEFGH'[number % 7]}{number // 3}" for number in range(MODELS)]
    campaigns = phrases(pyarrow.array(range(400)), "campaign", 2, 3, separator="_")
    timings = {name: whole(skewed(n, name, most)) for name, most in {
        "redirect_ms": 2_000, "dns_ms": 500, "connect_ms": 1_500, "tls_ms": 1_500, "wait_ms": 8_000, "response_ms": 12_000, "fetch_ms": 20_000,
        "first_paint_ms": 15_000, "interactive_ms": 30_000, "loaded_ms": 60_000}.items()}
    columns = {
        "view_id": identity(n, "view"),
        "event_time": moments(second),
        "event_date": compute.divide(plus(second, START_S), 86_400).cast(pyarrow.int32()).cast(pyarrow.date32()),
        "received_time": moments(plus(second, skewed(n, "delay", 900))),
        "visit_id": identity(visit, "visit id"),
        "user_id": identity(user_rank, "user id"),
        "site_id": whole(site),
        "account_id": whole(plus(compute.divide(site, 3), 100)),
        "visit_page": small(plus(skewed(n, "visit page", 60), 1)),
        "tab_id": identity(plus(times(visit, 4), below(n, "tab", 4)), "tab id"),
        "event_kind": small(skewed(n, "kind", 8)),
        "counter_version": small(plus(skewed(visit, "version", 9), 20)),
        "is_new_user": flag(visit, "new", 5),
        "is_bounce": flag(visit, "bounce", 3),
        "is_link": flag(n, "link", 6),
        "is_download": flag(n, "download", 90),
        "is_refresh": flag(n, "refresh", 9),
        "is_counted": small(where(one_in(n, "not counted", 50), 0, 1)),
        "url": texts_of(page, urls),
        "url_hash": identity(page, "page"),
        "url_category": small(below(page, "category", 300)),
        "url_region": whole(skewed(site, "url region", REGIONS)),
        "title": texts_of(page, titles),
        "page_language": chosen(["en", "de", "ru"], below(site, "language", 3)),
        "page_charset": chosen(["utf-8", "windows-1251", ""], skewed(site, "charset", 3)),
        "referrer": texts_of(referrer, referrers),
        "referrer_hash": identity(referrer, "page"),
        "referrer_category": small(where(has_referring_page, below(referrer, "category", 300))),
        "referrer_region": whole(where(has_referring_page, skewed(other_site, "url region", REGIONS))),
        "traffic_source": small(source),
        "search_engine": small(engine),
        "search_phrase": texts_of(phrase_rank, search_phrases),
        "ad_engine": small(where(is_ad, plus(skewed(n, "ad engine", 18), 1))),
        "social_network": chosen(["", "chatter", "plaza", "circle"], where(is_social, plus(below(n, "network", 3), 1))),
        "social_action": chosen(["", "share", "like"], where(is_social, below(n, "action", 3))),
        "client_ip": whole(plus(below(plus(times(user_rank, 2), below(visit, "second address", 2)), "address", 2**31 - 16), -2**30)),
        "network_ip": whole(below(user_rank, "network address", 2**24)),
        "region_id": whole(skewed(user_rank, "region", REGIONS)),
        "city_id": whole(skewed(user_rank, "city", 50_000), compute.less(below(user_rank, "city known", 10), 8)),
        "country": chosen(COUNTRIES, skewed(user_rank, "country", len(COUNTRIES))),
        "utc_offset_minutes": small(times(plus(below(user_rank, "offset", 27), -12), 60)),
        "language": chosen(["en-US", "de-DE", "pt-BR", "ja", "fr", "pl"], skewed(user_rank, "user language", 6)),
        "age": small(times(below(user_rank, "age", 6), 10)),
        "sex": small(below(user_rank, "sex", 3)),
        "income": small(below(user_rank, "income", 5)),
        "interests": whole(below(user_rank, "interests", 2**16)),
        "robot_kind": small(where(one_in(user_rank, "robot", 50), plus(below(user_rank, "robot kind", 5), 1))),
        "agent": small(below(agent, "agent number", 90)),
        "agent_text": texts_of(agent, agents),
        "browser_major": small(plus(below(agent, "major", 60), 80)),
        "browser_minor": decimals(below(agent, "build", 6_000)),
        "system": small(below(agent, "system", len(SYSTEMS))),
        "is_mobile": small(where(is_mobile, 1)),
        "mobile_vendor": chosen(["", *VENDORS], where(is_mobile, plus(remainder(plus(model, -1), len(VENDORS)), 1))),
        "mobile_model": chosen(model_names, model),
        "screen_width": small(width),
        "screen_height": small(height),
        "screen_colours": small(where(one_in(user_rank, "colours", 20), 30, 24)),
        "window_width": small(plus(width, times(below(visit, "window width", 12), -16))),
        "window_height": small(plus(height, times(below(visit, "window height", 20), -8), -80)),
        "pixel_ratio": chosen([1.0, 2.0, 1.25, 1.5, 2.625, 3.0], skewed(user_rank, "ratio", 6)),
        "connection_kind": small(skewed(visit, "connection", 6)),
        "has_cookies": compute.invert(one_in(user_rank, "cookies", 40)),
        "has_scripts": compute.invert(one_in(user_rank, "scripts", 200)),
        "has_storage": compute.invert(one_in(user_rank, "storage", 30)),
        "has_touch": any_of(is_mobile, one_in(user_rank, "touch", 9)),
        "prefers_dark": one_in(user_rank, "dark", 4),
        "consent": small(skewed(user_rank, "consent", 4)),
        **timings,
        "redirects": small(skewed(n, "redirects", 5)),
        "seconds_on_page": whole(skewed(n, "seconds", 3_600)),
        "scroll_percent": small(below(n, "scroll", 101)),
        "click_x": whole(below(n, "x", 2_000), is_event),
        "click_y": whole(below(n, "y", 6_000), is_event),
        "payload_bytes": whole(skewed(n, "payload", 4_000_000)),
        "utm_source": chosen(["", "letter", "partner", "banner", "video"], where(is_campaign, plus(skewed(visit, "utm source", 4), 1))),
        "utm_medium": chosen(["", "email", "cpc", "social"], where(is_campaign, plus(skewed(visit, "utm medium", 3), 1))),
        "utm_campaign": where(is_campaign, chosen(campaigns, skewed(visit, "utm campaign", 400)), ""),
        "utm_content": chosen(["", "top", "side", "footer"], where(is_campaign, below(visit, "utm content", 4))),
        "utm_term": where(compute.and_(is_campaign, one_in(visit, "term", 3)), chosen(LATIN_WORDS, skewed(visit, "utm term", 900)), ""),
        "open_service": chosen(["", "market", "direct"], where(is_ad, below(n, "service", 3))),
        "open_campaign": where(is_ad, decimals(skewed(n, "open campaign", 9_000)), ""),
        "open_ad": where(is_ad, decimals(skewed(n, "open ad", 90_000)), ""),
        "goal_id": whole(plus(skewed(n, "goal number", 200), 1), is_event),
        "order_id": where(is_order, decimals(n), None),
        "order_items": small(where(is_order, plus(skewed(n, "items", 12), 1))),
        "price_cents": where(is_order, skewed(n, "price", 500_000), None),
        "currency": chosen(["", "EUR", "USD", "JPY"], where(is_order, plus(skewed(n, "currency", 3), 1))),
        "error_text": chosen(["", "script error", "resource not loaded: status 404", "timeout of 30000 ms exceeded"],
                             where(one_in(n, "error", 60), plus(skewed(n, "error text", 3), 1))),
        "http_status": small(chosen([200, 304, 404, 301, 500], skewed(n, "status", 5))),
        "test_group": chosen(["a", "b", "c", "d"], below(user_rank, "test group", 4)),
        "collector": chosen(["fra-1", "fra-2", "iad-1", "nrt-1"], below(n, "collector", 4)),
    }
    return pyarrow.record_batch(columns)


def batches(first, count, rows):
    """The same, batch by batch."""
    for start in range(first, first + count, BATCH_ROWS):
        yield batch(start, min(BATCH_ROWS, first + count - start), rows)
