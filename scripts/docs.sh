#!/usr/bin/env bash
# Builds the site of README, docs/ and the pages that they link to, by mdBook, and looks for links that lead nowhere in it.
#
# usage: scripts/docs.sh    needs mdbook: cargo install mdbook --locked
#
# mdBook wants all pages below one folder: they are copied to target/docs-source with the repository's layout, so that their links
# hold, and its table of contents is docs/SUMMARY.md with paths from the root.
source "$(dirname "$0")/environment.sh"

cd "$project_root"
command -v mdbook > /dev/null || die "mdbook is missing: cargo install mdbook --locked"
source_folder=target/docs-source
rm -rf "$source_folder" target/docs-site
mkdir -p "$source_folder/benches" "$source_folder/regress" target/docs-site
cp ./*.md LICENSE "$source_folder/"
cp -r docs "$source_folder/"
cp -r benches/results "$source_folder/benches/"
mkdir -p "$source_folder/kernels"
# mdBook makes a README the index of its folder, but not links to it: only the front page is called so here.
cp regress/README.md "$source_folder/regress/tests.md"
cp kernels/README.md "$source_folder/kernels/kernels.md"
# Reports are pages too, below the one on benchmarks, by their titles.
reports() {
    local report title
    for report in benches/results/*.md; do
        title=$(sed -nE '1s/^# //p' "$report")
        printf '  - [%s](%s)\n' "$title" "$report"
    done
}
while IFS= read -r line; do
    printf '%s\n' "$line"
    if [[ $line == *'(docs/benchmarks.md)' ]]; then reports; fi
done < <(sed -E 's#\]\(\.\./#](#; t; s#\]\(#](docs/#' docs/SUMMARY.md) > "$source_folder/SUMMARY.md"
rm "$source_folder/docs/SUMMARY.md"
find "$source_folder" -name '*.md' -exec sed -i 's#regress/README\.md)#regress/tests.md)#g; s#kernels/README\.md)#kernels/kernels.md)#g' {} +
mdbook build >&2
python3 regress/docs/site.py target/docs-site
say "made target/docs-site/index.html"
