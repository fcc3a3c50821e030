# shellcheck shell=bash
# Packages of Red Hat's family, in PGDG's names and places. Sourced by scripts/packages.sh; needs rpmbuild (Debian: package rpm).
#
#   pystachio-engine     /usr/libexec/pystachio/pystachio-engine, documents
#   pystachio_<major>    the extension, and a link to the engine beside it
#   …-debuginfo          debug information of either

RPM_ENGINE=/usr/libexec/pystachio/pystachio-engine

# Builds a package and its -debuginfo of files that lie below a root already: pack_rpm NAME ROOT SUMMARY REQUIRES DEBUG_FOLDER.
pack_rpm() {
    local name=$1 root=$2 synopsis=$3 requires=$4 debug=$5 top=$work/rpm/top
    mkdir -p "$root/usr/lib/debug" "$top"
    cp -r "$debug/.build-id" "$root/usr/lib/debug/"
    settle "$root"
    {
        printf 'Name: %s\nVersion: %s\nRelease: 1\nSummary: %s\nLicense: Apache-2.0\n' "$name" "$package_version" "$synopsis"
        printf 'Group: Applications/Databases\nPackager: %s\n' "$packager"
        if [[ -n $requires ]]; then printf 'Requires: %s\n' "$requires"; fi
        printf '\n%%description\n%s\n' "$description"
        printf '\n%%package debuginfo\nSummary: Debug information of %s\nGroup: Development/Debug\nAutoReqProv: no\n' "$name"
        printf 'Requires: %s = %s-1\n' "$name" "$package_version"
        printf '\n%%description debuginfo\nFunction names and lines of what %s installs, for debuggers.\n' "$name"
        printf '\n%%install\ncp -a "%s/." "%%{buildroot}/"\n' "$root"
        printf '\n%%files\n%%defattr(-,root,root)\n'
        # Folders of its own go with it.
        (cd "$root" && find usr -type d -name '*pystachio*' | sort | sed 's#^#%dir /#')
        (cd "$root" && find usr -path '*pystachio*/docs*' -type d | sort | sed 's#^#%dir /#')
        (cd "$root" && find usr \( -type f -o -type l \) ! -path 'usr/lib/debug/*' | sort | sed 's#^#/#')
        printf '\n%%files debuginfo\n%%defattr(-,root,root)\n'
        (cd "$root" && find usr/lib/debug -type f | sort | sed 's#^#/#')
    } > "$work/rpm/$name.spec"
    rpmbuild -bb --quiet --define "_topdir $top" --define "_rpmdir $out" --define "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
        --define 'debug_package %{nil}' --define '__os_install_post %{nil}' --define '_build_id_links none' \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' --define '_buildhost localhost' \
        --define "_binary_payload w$level.xzdio" "$work/rpm/$name.spec" >&2
}

make_rpm() {
    local major root
    command -v rpmbuild > /dev/null || die "rpmbuild is missing: on Debian it is in the package rpm"
    root=$work/rpm/engine
    lay_engine "$root" "$RPM_ENGINE" /usr/share/doc/pystachio-engine
    install -D -m 0644 -t "$root/usr/share/licenses/pystachio-engine" "$project_root/LICENSE"
    pack_rpm pystachio-engine "$root" "Columnar engine of pystachio" "" "$work/debug/engine"
    for major in "${versions[@]}"; do
        root=$work/rpm/$major
        lay_extension "$root" "$major" "/usr/pgsql-$major/lib" "/usr/pgsql-$major/share" "$RPM_ENGINE"
        install -D -m 0644 -t "$root/usr/share/licenses/pystachio_$major" "$project_root/LICENSE"
        pack_rpm "pystachio_$major" "$root" "$summary" "postgresql$major-server, pystachio-engine = $package_version-1" "$work/debug/$major"
    done
}
