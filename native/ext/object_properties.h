/* Remembers and restores the properties of objects, for worker scripts that keep a framework's services.
 *
 * Promises
 * - Applies to the properties that the object's own class may access, as get_object_vars() in one of its methods: its dynamic ones,
 *   but no private ones of a parent class. Those that are not initialised, read-only or virtual are left alone.
 * - A property that has not changed costs one comparison. An array of which a request has made a copy is not copied again: the copy
 *   gets the remembered elements, and loses the others.
 * - What the restored properties held is freed in the end, when all of them have their values: a destructor finds no half of them.
 */
#ifndef HEARTH_EXT_OBJECT_PROPERTIES_H
#define HEARTH_EXT_OBJECT_PROPERTIES_H

#include <php.h>

/* Remembers the objects of an array, in place of those before. Borrowed. */
void object_properties_remember(HashTable *objects);
/* Restores the remembered properties in the order of the objects, if there are any. May run destructors. */
void object_properties_put_back(void);
/* Called at the end of the script: forgets objects and values. */
void object_properties_forget(void);

#endif
