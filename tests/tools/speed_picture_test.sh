# The picture of the README is drawn from the table that the results page has now.
set -eu
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
exec python3 "$ORDO_SOURCE/tools/speed-picture" --check
