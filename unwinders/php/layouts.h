/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where PHP's structures have what the walk needs, by version. From offsetof() over the headers of
 * Debian's php7.4-dev, php8.2-dev, php8.4-dev, php8.5-dev and php8.6-dev (Zend/zend_globals.h,
 * zend_compile.h, zend_generators.h); 8.0, 8.1 and 8.3 from the same files of php-src. Both
 * architectures have the same numbers. What has never differed is in php.c.
 */
#pragma once

#include <stdint.h>

#define LAYOUT_FIELDS(X)                                  \
	X(eg_function_table) /* zend_executor_globals */  \
	X(eg_current_execute_data)                        \
	X(op_last) /* zend_op_array: number of opcodes */ \
	X(op_opcodes)                                     \
	X(op_filename)                                    \
	X(op_line_start)                                  \
	X(gen_execute_data) /* zend_generator */          \
	X(gen_parent)

struct layout {
#define X(name) int32_t name;
	LAYOUT_FIELDS(X)
#undef X
};

static const struct {
	uint16_t major, minor;
	struct layout layout;
} layout_rows[] = {
	{ 7, 4, { 432, 488, 60, 64, 136, 144, 64, 160 } },
	{ 8, 0, { 432, 488, 68, 72, 144, 152, 56, 152 } },
	{ 8, 1, { 432, 488, 68, 72, 144, 152, 56, 152 } },
	{ 8, 2, { 432, 488, 80, 88, 152, 160, 56, 152 } },
	{ 8, 3, { 432, 488, 76, 80, 144, 152, 56, 152 } },
	{ 8, 4, { 432, 488, 96, 104, 168, 176, 56, 152 } },
	{ 8, 5, { 456, 512, 96, 104, 168, 176, 56, 152 } },
	{ 8, 6, { 456, 512, 96, 104, 168, 176, 56, 152 } },
};
