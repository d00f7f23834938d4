# tools/setup is silent where nothing is missing, and names what is.
set -eu
setup=$ORDO_SOURCE/tools/setup
said=$("$setup" build 2>&1) || exit 1
if [ -n "$said" ]; then
    echo "with all there it says: $said"
    exit 1
fi
bare=$(mktemp -d) # a machine with a shell and no tools, apt-get among them
trap 'rm -rf "$bare"' EXIT
if said=$(CC='' PATH=$bare /bin/sh "$setup" build 2>&1); then
    echo "with nothing there it succeeds"
    exit 1
fi
case $said in
*"gcc"*"cmake ninja-build"*) ;;
*)
    echo "with nothing there it says: $said"
    exit 1
    ;;
esac
