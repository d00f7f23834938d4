# tools/readme-commands runs every line of the shell blocks and each Python block, and no other.
set -eu
readme=$(mktemp)
trap 'rm -f "$readme" "$readme.said"' EXIT
cat >"$readme" <<'README'
Text with `false` in it.
```c
exit(1);
```
```sh
# a comment
true && \
  echo joined
$ test -e include/ordo/ordo.h   # at the root of the sources
```
  ```sh
  false | cat
  ```
```python
test -e include/ordo/ordo.h
[ "$PYTHONPATH" = python ]
```
```python
set -e
false
true
```
README
expected='ok   readme: true && echo joined
ok   readme: test -e include/ordo/ordo.h   # at the root of the sources
FAIL readme: false | cat
ok   readme: PYTHONPATH=python bash block-15.py
FAIL readme: PYTHONPATH=python bash block-19.py'
if said=$(PYTHON=bash "$ORDO_SOURCE/tools/readme-commands" "$readme"); then
    echo "a failed line went unseen"
    exit 1
fi
if [ "$said" != "$expected" ]; then
    printf 'said:\n%s\nexpected:\n%s\n' "$said" "$expected"
    exit 1
fi

# A line that has been run already; but not one that is not there.
PYTHON=true "$ORDO_SOURCE/tools/readme-commands" --ran 'false | cat' "$readme" >"$readme.said" || {
    cat "$readme.said"
    exit 1
}
grep -qx 'ran  readme: false | cat' "$readme.said"
if PYTHON=true "$ORDO_SOURCE/tools/readme-commands" --ran 'false' "$readme" >"$readme.said"; then
    echo "--ran: a line that is not there went unseen"
    exit 1
fi
