# compilers_test.sh with options that nobody ships.
LEVELS="-O0 -Os -O2,-ftree-vectorize,-funroll-loops -O3,-fno-strict-aliasing,-fwrapv" \
    exec bash "$ORDO_SOURCE/tests/cpu/compilers_test.sh"
