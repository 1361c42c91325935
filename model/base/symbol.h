/* Functions of libraries that the program loads by itself. */
#ifndef CONVOY_MODEL_BASE_SYMBOL_H
#define CONVOY_MODEL_BASE_SYMBOL_H

#include <stdbool.h>

/* Finds `name` in a library that dlopen gave and stores its address in *function, a pointer to a function of
 * that type. False, and NULL there, if the library has no such name. */
bool symbol_find(void *library, const char *name, void *function);

#endif
