"""The reader of pages, the comparison of outputs, and the checks of links and texts, without a server."""

import pathlib
import tempfile
import unittest

from docs import links, lists
from docs.page import Page, PageError, mismatch

_PAGE = """# A page
<!-- test: prepare, tpch -->

See [there](other.md#some-words-here) and `[no](link.md)`, ![picture](a.svg).

```sql
SELECT 1;
```

<!-- test: output -->
```text
(1 row)
```

<!-- test: skip, no Docker -->
```sh
docker run it
```

| setting | what |
|---|---|
| `a.b` | one \\| two |

## Some `words`, here!
"""


class PageTest(unittest.TestCase):
    def test_a_page_is_read(self):
        page = Page("page.md", _PAGE)
        steps = [(block.text, block.directives, output and output.text) for block, output in page.steps()]
        self.assertEqual(steps, [("SELECT 1;", {}, "(1 row)"), ("docker run it", {"skip": "no Docker"}, None)])
        self.assertEqual(page.preparation, "tpch")
        self.assertEqual(page.targets(), ["other.md#some-words-here", "a.svg"])
        self.assertEqual(page.anchors(), ["a-page", "some-words-here"])
        self.assertEqual(page.table_rows("`a.b`"), [["`a.b`", "one \\| two"]])

    def test_comments_that_mean_nothing_are_errors(self):
        for text in ("<!-- test: skip -->\n```sh\nls\n```", "<!-- test: jump, far -->\n```sh\nls\n```", "<!-- test: error -->\ntext",
                     "<!-- test: output -->\n```text\nno block before\n```", "```sql\nno end", "<!-- test: error -->\n```text\nx\n```",
                     "```sql\nSELECT 1;\n```\n<!-- test: prepare, tpch -->"):
            with self.subTest(text), self.assertRaises(PageError):
                Page("page.md", text)

    def test_an_output_is_the_end_of_what_is_printed(self):
        self.assertIsNone(mismatch("b\nc", "a\nb  \nc\n\n"))
        self.assertIsNotNone(mismatch("a\nb", "a\nb\nc"))
        self.assertIsNotNone(mismatch("a\nc", "a\nb\nc"))
        self.assertIsNotNone(mismatch("b", ""))

    def test_an_ellipsis_is_anything(self):
        self.assertIsNone(mismatch("a … c\n…", "a 1 c\nd\ne"))
        self.assertIsNone(mismatch("…\nb", "a\nb"))
        self.assertIsNone(mismatch("a\n…\nc", "a\nc"))
        self.assertIsNotNone(mismatch("a\n…\nc", "a\nb"))
        self.assertIsNotNone(mismatch("a … c", "a 1 d"))

    def test_numbers_are_compared_only_where_they_count(self):
        self.assertIsNone(mismatch(" x |  1.50\n----+------", " x | 123\n--+---", with_numbers=True))
        self.assertIsNotNone(mismatch("rows=10", "rows=11"))
        self.assertIsNotNone(mismatch("rows=10", "lines=10", with_numbers=True))


class ChecksTest(unittest.TestCase):
    def test_links_that_lead_nowhere_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder).resolve() / "page.md"
            path.write_text(_PAGE, encoding="utf-8")
            known = {path: Page("page.md", _PAGE)}
            self.assertIsNone(links.fault(path, "page.md#some-words-here", known))
            self.assertIsNone(links.fault(path, "#a-page", known))
            self.assertIn("no such heading", links.fault(path, "#b-page", known))
            self.assertIn("no such file", links.fault(path, "gone.md", known))

    def test_texts_of_errors_are_found_in_code(self):
        code = 'format!("file \\"{path}\\" has no \\\n        column");'.replace("\\\n        ", "").replace('\\"', '"')
        self.assertTrue(lists.is_in_source('file "…" has no column', code))
        self.assertFalse(lists.is_in_source('file "…" has two columns', code))

    def test_lists_that_differ_are_told_apart(self):
        lists.require_same({"a"}, ["a"])
        with self.assertRaisesRegex(AssertionError, r"missing on the page: \['b'\]; only on the page: \['c'\]"):
            lists.require_same({"a", "c"}, {"a", "b"})


if __name__ == "__main__":
    unittest.main()
