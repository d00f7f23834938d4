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
# One who is not root reads once what demo, test and train need, and nothing of the long tests.
printf '#!/bin/sh\necho 1000\n' >"$bare/id"
printf '#!/bin/sh\nexit 1\n' >"$bare/apt-get"
ln -s /bin/uname "$bare"
chmod +x "$bare/id" "$bare/apt-get"
for task in build test long python; do
    if said=$(CC='' CXX='' PATH=$bare /bin/sh "$setup" $task 2>&1); then
        echo "setup $task with nothing there succeeds"
        exit 1
    fi
    for package in gcc cmake ninja-build g++ pkg-config python3 python3-venv; do
        case " ${said##*recommends} " in
        *" $package "*) ;;
        *)
            echo "setup $task does not name $package: $said"
            exit 1
            ;;
        esac
    done
    case $said in *mpi* | *qemu* | *chromium*)
        echo "setup $task wants what only adds tests: $said"
        exit 1
        ;;
    esac
done
