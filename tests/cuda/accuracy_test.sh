# The CUDA passes against fp64 and PyTorch's math backend, where there are PyTorch and a GPU.
if [ ! -e "$ORDO_BUILD/lib/libordo_cuda.so" ]; then
    echo "no CUDA module in this build"
    exit 77
fi
ORDO_LIBRARY=$ORDO_BUILD/lib/libordo.so exec python3 "$ORDO_SOURCE/tests/cuda/accuracy_h200.py" --quick
