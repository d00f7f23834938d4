# The lines of cuda of the registry of numeric keys on the emulator: about a minute of CPU time.
exec bash "$ORDO_SOURCE/tests/cli/attention/bits_test.sh" --emulator
