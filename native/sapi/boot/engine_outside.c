/* hearth-worker-8.x: the engine is a library. See engine_program.h. */
#include "sapi/boot/engine_program.h"

const bool engine_program_inside = false;
