# tools/release finds a tree that is fit for a tag, and each way in which one is not.
set -eu
command -v git >/dev/null && command -v python3 >/dev/null || exit 77
tree=$(mktemp -d) kept=$(mktemp)
trap 'rm -rf "$tree" "$kept"' EXIT
version=$("$ORDO_SOURCE/tools/release" --version)
[ "$("$ORDO" --version | head -n 1 | cut -d' ' -f2)" = "$version" ] || {
    echo "the command is not of version $version"
    exit 1
}
"$ORDO_SOURCE/tools/release" --check version # this tree; the rest is for the day of a release

mkdir -p "$tree/tools" "$tree/include/ordo" "$tree/debian" "$tree/tests/data/digests"
cp "$ORDO_SOURCE/tools/release" "$tree/tools"
printf '#define ORDO_VERSION_%s\n' 'MAJOR 1' 'MINOR 10' 'PATCH 3' >"$tree/include/ordo/status.h"
echo 'ordo (1.10.3-1) unstable; urgency=medium' >"$tree/debian/changelog"
printf '# Changelog\n\n## 1.10.3, 2026-01-02\n\nBits: as before, `cpu` 2.\n\n## 1.9.0, 2025-01-02\n' >"$tree/CHANGELOG.md"
five='0123456789abcdef 0123456789abcdef 0123456789abcdef 0123456789abcdef 0123456789abcdef'
cat >"$tree/tests/data/digests/keys.txt" <<KEYS
# a comment
cpu.r1/old | 1.0.0 | 1.9.0 | --device cpu | -
cpu.r2/new | 1.9.2 | - | --device cpu | $five
KEYS
cd "$tree"
git init -q .
git config user.name ordo
git config user.email ordo@example.com
git add . && git commit -qm first
expect() { # status, words, of which check
    local status=0 said
    said=$(tools/release --check "${@:3}") || status=$?
    if [ $status != "$1" ] || ! grep -qF "$2" <<<"$said"; then
        echo "expected exit $1 with '$2', got $status with '$said'"
        exit 1
    fi
}
spoil() { # file, sed's command, words, check
    cp "$1" "$kept"
    sed -i "$2" "$1"
    expect 1 "FAIL release: $4: $3" "$4"
    cp "$kept" "$1"
}
expect 0 "ok   release: tree"
git tag v1.10.3
expect 0 "ok   release: tree"
spoil include/ordo/status.h 's/ 3/ 4/' "debian/changelog begins with 'ordo (1.10.3-1)" version
spoil include/ordo/status.h '/PATCH/d' "include/ordo/status.h states '1.10'" version
spoil CHANGELOG.md 's/1.10.3, .*/Unreleased/' "CHANGELOG.md begins with 'Unreleased'" changelog
spoil CHANGELOG.md 's/^Bits/Speed/' "section 1.10.3 of CHANGELOG.md begins with 'Speed" changelog
spoil CHANGELOG.md 's/`cpu` 2/`cpu` 1/' "section 1.10.3 of CHANGELOG.md does not name the numeric revision \`cpu\` 2" changelog
spoil tests/data/digests/keys.txt 's/| [0-9a-f]* .*/| -/' "cpu.r2/new, --device cpu: no digests" registry
spoil tests/data/digests/keys.txt 's/1.9.2/1.11.0/' "cpu.r2/new: first version 1.11.0 is after" registry
spoil tests/data/digests/keys.txt 's/ | - |/ |/' "line 'cpu.r2/new" registry
spoil CHANGELOG.md 's/as before/changed/' "not committed: CHANGELOG.md" tree
spoil tests/data/digests/keys.txt 's/1.9.0/1.11.0/' "cpu.r1/old: last version 1.11.0 is after" registry
mv .git .other
expect 1 "FAIL release: tree: git status fails here" tree
mv .other .git
git commit -q --allow-empty -m second
expect 1 "tag v1.10.3 is another commit" tree
expect 1 "ok   release: version" # one failure does not hide the rest
if tools/release --check nonsense 2>/dev/null; then
    echo "an unknown check succeeds"
    exit 1
fi
echo "a tree fit for a tag, and eleven that are not"
