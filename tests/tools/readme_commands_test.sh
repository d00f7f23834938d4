# tools/readme-commands runs every line of shell blocks, the Python program and the C blocks of
# a page with the hidden code before them, and leaves out what is marked.
set -eu
command -v python3 >/dev/null || { echo "no python3" && exit 77; }
readme=$(mktemp)
trap 'rm -f "$readme" "$readme.said"' EXIT
cat >"$readme" <<'README'
Text with `false` in it.
```
false
```
```sh
# a comment
true && \
  echo joined
$ test -e include/ordo/ordo.h   # at the root of the sources
```
  ```sh
  false | cat
  echo DIFFERENT
  ```
<!-- before
value = 6 * 7
-->
```python
import os
assert value == 42 and os.path.exists("include/ordo/ordo.h")
```
```python
assert os.environ["PYTHONPATH"] == "python"
assert value == 43
```
<!-- run: long -->
```sh
false
```
<!-- run: no: there is no such command -->
```sh
nosuch
```
<!-- before
int answer = 41;
-->
```c
#include <stdio.h>
if (answer != 41) return 1;
```
<!-- before
answer=42
-->
```sh
test $answer = 42 && answer=43
test $answer = 42
```
<!-- run: alone -->
<!-- before
answer = 42
-->
```python
assert answer == 42 and "value" not in globals()
```
README
expected='ok   readme: true && echo joined
ok   readme: test -e include/ordo/ordo.h   # at the root of the sources
FAIL readme: false | cat
FAIL readme: echo DIFFERENT
left readme: '"${readme##*/}"':28 (long)
left readme: '"${readme##*/}"':32 (no)
ok   readme: '"${readme##*/}"':38
ok   readme: test $answer = 42 && answer=43
ok   readme: test $answer = 42
ok   readme: '"${readme##*/}"':53
FAIL readme: '"${readme##*/}"', Python'
export PYTHON=python3
if said=$("$ORDO_SOURCE/tools/readme-commands" "$readme" | grep -v "^|"; exit "${PIPESTATUS[0]}"); then
    echo "a failed line went unseen"
    exit 1
fi
if [ "$said" != "$expected" ]; then
    printf 'said:\n%s\nexpected:\n%s\n' "$said" "$expected"
    exit 1
fi

sed -i '/value == 43/d; /DIFFERENT/d' "$readme"
# A line that has been run already; but not one that is not there.
"$ORDO_SOURCE/tools/readme-commands" --ran 'false | cat' "$readme" >"$readme.said" || {
    cat "$readme.said"
    exit 1
}
grep -qx 'ran  readme: false | cat' "$readme.said"
if "$ORDO_SOURCE/tools/readme-commands" --ran 'false' "$readme" >"$readme.said"; then
    echo "--ran: a line that is not there went unseen"
    exit 1
fi
