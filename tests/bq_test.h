/* What every unit test includes first: cmocka, behind the headers that it expects before it. */
#ifndef BQ_TEST_H
#define BQ_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
