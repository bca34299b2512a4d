/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelf: base. Mangled names to names that people read, by libiberty: C++ (Itanium ABI) and Rust
 * (legacy and v0). Without parameters and return types, Rust without hashes: what a frame's name
 * is for. A file chooses its symbols, so input, output, recursion and time are bounded.
 */
#pragma once

#include "util.h"

#define DEMANGLE_IN_MAX  4096 /* bytes of a mangled name; longer ones stay as they are */
#define DEMANGLE_OUT_MAX 1024 /* bytes of a readable one; longer ones end in "..." */

/*
 * Writes the readable form of name to dst, at most size - 1 bytes and DEMANGLE_OUT_MAX. Returns
 * false, and dst untouched, when the name is not mangled or not soundly so. Suffixes of compilers
 * (".cold", ".llvm.123") stay as "[clone .cold]" in C++ and go in Rust.
 */
bool demangle(const char *name, char *dst, size_t size);
/*
 * A name that a JVM made up (hidden classes, lambdas, generated accessors) without the numbers
 * that differ from run to run: "a.B$$Lambda/0x00007f.run" and "a.B$$Lambda$14/123.run" become
 * "a.B$$Lambda.run". In place.
 */
void demangle_hidden(char *name);
