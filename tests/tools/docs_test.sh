# tools/check-docs accepts the documents and catches what is out of date in them.
. "$ORDO_SOURCE/tests/common.sh" git python3
set -e
D=docs # not spelled out, since the paths below are none of the real tree

if [ -e "$ORDO_SOURCE/.git" ]; then
    "$ORDO_SOURCE/tools/check-docs" || fail "the documents are out of date"
fi

tree() { # a tree that is in order
    rm -rf "$work/tree"
    mkdir -p "$work/tree/docs/adr" "$work/tree/docs/results" "$work/tree/docs/guide" "$work/tree/docs/design" "$work/tree/src" "$work/tree/python" "$work/tree/lab/docs"
    git -C "$work/tree" init -q
    cd "$work/tree"
    echo '[adr](adr/README.md) [a](guide/a.md) [t](guide/transformers.md) [n](design/notation.md) [r](results/r.md)' >$D/README.md
    printf '# A page\n## Part 2: all, else\n' >$D/guide/a.md
    printf '| model types | attention | dropout | names |\n| decoder | ordo | ordo | one |\n| decoder | its own | | two |\n' >$D/guide/transformers.md
    echo '# Notation' >$D/design/notation.md
    printf '# R\n<!-- table speed -->\n2026-01-01, a machine: `bench`.\n\n| a |\n|---|\n<!-- end -->\n' >$D/results/r.md
    echo '# 0001: A title' >$D/adr/0001-a.md
    echo '| [0001](0001-a.md) | A title | 2026-01-01 | accepted |' >$D/adr/README.md
    echo "/* $D/guide/a.md and $D/adr/0001 say why; build/docs/x does not */" >src/a.c
    echo "[a]($D/guide/a.md#part-2-all-else) [b](https://example.org/b) x[i](c+r)" >README.md
    echo "[1 architectures]($D/guide/transformers.md)" >>README.md
    echo 'src/a.c src/NAME.c build/tests/x /src/b /* tests/b.c */' >>README.md
    echo 'src/b.c is no more' >CHANGELOG.md
    echo 'torch = ["torch>=2.10"]' >pyproject.toml
    echo 'PyTorch 2.10 and later' >>README.md
    mkdir tests && touch tests/b.c
}
plant() { # file, line that is added to it, what must be said
    tree
    echo "$2" >>"$1"
    if said=$("$ORDO_SOURCE/tools/check-docs" "$work/tree" 2>&1); then
        fail "let pass in $1: $2"
    elif [ "${said#"$1: "*"$3"}" = "$said" ]; then
        fail "said of $1: $said; expected: $3"
    fi
}

tree
"$ORDO_SOURCE/tools/check-docs" "$work/tree" || fail "refused a tree in order"
plant README.md "[c]($D/c.md)" "link to $D/c.md"
plant $D/guide/a.md '[here](#part-3)' 'link to #part-3'
plant $D/guide/a.md '[up](../../README.md#a-page)' 'link to ../../README.md#a-page'
plant src/a.c "/* $D/a.md */" "$D/a.md: no such file"
plant $D/guide/a.md 'See `src/b.c`.' 'src/b.c: no such file'
plant $D/guide/a.md '    ordo run --seq 8' 'ordo run in an indented block'
plant $D/adr/0002-b.md '# 0002: B' 'adr/README.md does not list it: | [0002](0002-b.md) | B |'
plant $D/guide/b.md '# B' "README.md does not list it: ](guide/b.md)"
L=lab/$D && plant $L/c.md '# C' "README.md does not list it: ](../$L/c.md)"
plant $D/guide/transformers.md '| decoder | ordo up to 8 keys | ordo | three-b, four |' '3 architectures that run'
plant $D/results/r.md '| a |' '| a |: expected inside'
plant $D/results/r.md '<!-- table loose -->' '<!-- table loose -->: expected inside'
plant $D/results/r.md '<!-- table cold -->
a machine: `bench`.

| 2026-01-01 |
<!-- end -->' 'table cold: expected a date and a command'
plant $D/results/r.md '<!-- table cold -->
2026-01-01, a machine.
| `bench` |
<!-- end -->' 'table cold: expected a date and a command'
plant $D/results/r.md '<!-- table speed -->
2026-01-02, a machine: `bench`.
| b |
<!-- end -->' 'table speed: expected one table for one question'
plant $D/results/r.md '<!-- table rate -->
2026-01-02, a machine: `bench`.
| b |
<!-- end -->' 'table rate: `bench` made table speed on the same machine'
plant src/a.c 'getenv("ORDO_A")' 'reads the variable ORDO_A'
plant python/b.py 'os.environ.get("ORDO_B", "")' 'reads the variable ORDO_B'
plant README.md 'for PyTorch 2.7 and later' 'PyTorch 2.7: pyproject.toml requires 2.10'
plant README.md 'a function of PyTorch
(2.7 or later)' 'PyTorch 2.7: pyproject.toml requires 2.10'
terms=$(seq 31 | sed 's/.*/| term & | meaning |/')
plant $D/design/notation.md "## Glossary
$terms" '31 terms in the glossary'
exit $failed
