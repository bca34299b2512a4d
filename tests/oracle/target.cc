// SPDX-License-Identifier: Apache-2.0
/*
 * Target of the unwinding oracle: C++ exceptions thrown through frames with destructors, caught
 * and thrown again. The stops lie inside the language's own unwinder while it unwinds.
 */
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#define FAR    __attribute__((noinline))
#define MARK() __asm__ volatile("int3" ::: "memory")

static volatile int sink;

struct guard {
	int n;
	FAR ~guard()
	{
		sink = sink + n;
	}
};

struct base {
	virtual int act(int n) = 0;
	virtual ~base() = default;
};

struct derived : base {
	FAR int act(int n) override
	{
		guard g{ n };
		std::string s(n * 10, 'x');

		if (n > 2)
			throw std::runtime_error(s);
		return act(n + 1) + (int)s.size();
	}
};

static FAR int catches(base &b)
{
	guard g{ 7 };

	try {
		return b.act(1);
	} catch (const std::logic_error &) {
		return 1;
	} catch (const std::runtime_error &e) {
		if (sink < 0)
			return (int)std::string(e.what()).size();
		throw;
	}
}

int main()
{
	derived d;

	MARK();
	try {
		sink = catches(d);
	} catch (...) {
		sink = 5;
	}
	MARK();
	return 0;
}
