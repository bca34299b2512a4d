/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests, live: loaded into a PHP as if it were an extension, brings two threads that are not PHP's: one
 * waits, one spins, as client libraries do. Has to be linked with -z nodelete, since it is none.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *wait_forever(void *arg)
{
	for (;;)
		sleep(1000);
	return arg;
}

static void *spin_beside(void *arg)
{
	volatile unsigned long n = 0;

	for (;;)
		n++;
	return arg;
}

__attribute__((constructor)) static void bring_threads(void)
{
	pthread_t id;

	if (pthread_create(&id, NULL, wait_forever, NULL) ||
	    pthread_create(&id, NULL, spin_beside, NULL))
		abort();
}
