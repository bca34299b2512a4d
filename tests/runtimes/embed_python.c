/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests, runtimes: a program that has its CPython in libpython3.N.so, as applications that embed
 * it do. In: the arguments of python. No header of CPython is used, so that one source serves all.
 */
int Py_BytesMain(int argc, char **argv);

int main(int argc, char **argv)
{
	return Py_BytesMain(argc, argv);
}
