// SPDX-License-Identifier: Apache-2.0
/*
 * Target of the unwinding oracle: crypto ALGORITHM. Hand-written assembly whose frame address is
 * *(rsp + n), or lies behind an index register (Montgomery multiplication). libcrypto is loaded at
 * run time, so its headers are not needed; exit status 77 when it is not there.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK() __asm__ volatile("int3" ::: "memory")

static void *lib;

static void *find(const char *name)
{
	void *p = dlsym(lib, name);

	if (!p)
		exit(77);
	return p;
}

static void digest(const char *name)
{
	const void *(*by_name)(const char *) =
		(const void *(*)(const char *))find("EVP_get_digestbyname");
	int (*run)(const void *, size_t, unsigned char *, unsigned *, const void *, void *) =
		(int (*)(const void *, size_t, unsigned char *, unsigned *, const void *,
			 void *))find("EVP_Digest");
	unsigned char data[600], out[64];
	const void *md = by_name(name);
	unsigned n;

	memset(data, 7, sizeof(data));
	/* Once before: providers are fetched and CPU features found. */
	if (!md || !run(data, 1, out, &n, md, NULL))
		exit(77);
	MARK();
	run(data, sizeof(data), out, &n, md, NULL);
	MARK();
}

static void power(void)
{
	void *(*num)(void) = (void *(*)(void))find("BN_new");
	void *(*ctx_new)(void) = (void *(*)(void))find("BN_CTX_new");
	int (*from_dec)(void **, const char *) = (int (*)(void **, const char *))find("BN_dec2bn");
	int (*shift)(void *, const void *, int) =
		(int (*)(void *, const void *, int))find("BN_lshift");
	int (*add_word)(void *, unsigned long) =
		(int (*)(void *, unsigned long))find("BN_add_word");
	int (*mod_exp)(void *, const void *, const void *, const void *, void *) = (int (*)(
		void *, const void *, const void *, const void *, void *))find("BN_mod_exp");
	void *base = NULL, *exponent = NULL, *mod = num(), *out = num(), *ctx = ctx_new();

	from_dec(&base, "123456789012345678901234567890123456789");
	from_dec(&exponent, "65537");
	shift(mod, base, 900);
	add_word(mod, 7);
	MARK();
	mod_exp(out, base, exponent, mod, ctx);
	MARK();
}

int main(int argc, char **argv)
{
	lib = dlopen("libcrypto.so.3", RTLD_NOW);
	if (!lib)
		lib = dlopen("libcrypto.so.1.1", RTLD_NOW);
	if (!lib || argc != 2)
		return 77;
	if (strcmp(argv[1], "power") == 0)
		power();
	else
		digest(argv[1]);
	return 0;
}
