/* no_entry_module.c: a shared object that is no CUDA module. */
extern const int ordo_nothing;
const int ordo_nothing = 0;
