/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The walk of an interpreter's stack as data. An interpreter keeps its frames in a list (or an
 * array) that begins somewhere in the thread; a recipe says where, which words of each node to
 * keep, and how to reach the next. One routine executes it (bpf/recipe.h), in the sampled thread
 * itself or over a process that stands still; a runtime's own code then turns the kept words into
 * frames. The only header that programs, core and unwinders share.
 */
#pragma once

#include <linux/types.h>

#define RECIPE_HOPS      6
#define RECIPE_WORDS     6
#define RECIPE_PEEKS     2
#define RECIPE_WIDTH_MAX (RECIPE_WORDS + RECIPE_PEEKS)
#define RECIPE_NODES_MAX 128
#define RECIPE_NODE_MAX  128 /* bytes of a node */
#define RECIPE_SEAM      (~0ull)

/* Where the walk begins. */
enum recipe_head {
	RECIPE_NO_HEAD, /* no walk: the runtime only names code */
	RECIPE_TP,      /* thread pointer: fs base, tpidr_el0 */
	RECIPE_ADDR,    /* an address of the process */
	RECIPE_TID,     /* a value that user space knows for the thread */
	RECIPE_JIT_FP,  /* frame pointer of the first frame in memory that is no file */
};

/* How a list ended. */
#define LIST_END_LIST(X)                                             \
	X(NONE, "no list was walked")                                \
	X(NULL, "whole: ended in a null pointer")                    \
	X(END, "whole: ended at the end of its array")               \
	X(EMPTY, "head is null")                                     \
	X(NO_HEAD, "thread without a known head")                    \
	X(LIMIT, "cut at the node limit")                            \
	X(UNREADABLE, "node not readable")                           \
	X(MISALIGNED, "pointer to a node misaligned")                \
	X(ORDER, "list leads back into itself, or not up the stack") \
	X(MOVED, "thread ran while it was read")

enum list_end {
#define X(name, text) LIST_END_##name,
	LIST_END_LIST(X)
#undef X
		LIST_END_MAX,
};

/*
 * p = head; for each hop: p = *(p + hop); p += add. Then for each node at p: bytes [p + lo,
 * p + lo + len) are read at once; word[i] (an index of 8-byte words in them) are kept, and
 * peek[i]: *((kept word[peek_word[i]] & ~7) + peek_off[i]), for objects that may move or die
 * before they are named (0 when unreadable or the word is below 4096). Next: word next_word &
 * mask, or p + stride while p is below the end.
 *
 * A thread may have further lists, which nothing in the first one leads to. Whoever owns a list is
 * a member of a group then: the first thread_hops hops lead to the owner of the thread's first
 * list, and every other member with the same *(member + member_id), in any of the groups, owns
 * another one of its lists, to which the rest of the hops leads. They follow in the order of
 * groups and members. Behind each list of a thread that has more than one with nodes comes a node
 * of the words RECIPE_SEAM, the address of the list's last node and that of the one before it.
 * With one group there is nothing to look for.
 */
struct recipe {
	__u64 addr;   /* RECIPE_ADDR */
	__u64 mask;   /* of a pointer to a node, the first one too; 0: none */
	__u64 groups; /* address of the pointer to the first group; 0: a thread has one list */
	__s32 group_next, group_member; /* in a group: the next one, its first member */
	__s32 member_next, member_id;
	__s32 hop[RECIPE_HOPS];
	__s32 add;
	__s32 lo;
	__s32 stride; /* 0: a linked list */
	/*
	 * Array: end = *(q + end_a) + (*(q + end_b) << end_shift) + end_add; q = p before hop
	 * end_hop; end_hop == nhops: after the last one, without add.
	 */
	__s32 end_a, end_b, end_add;
	__u16 len;   /* at most RECIPE_NODE_MAX */
	__u16 limit; /* nodes, at most RECIPE_NODES_MAX; 0: that */
	__s16 peek_off[RECIPE_PEEKS];
	__u8 word[RECIPE_WORDS];
	__u8 peek_word[RECIPE_PEEKS];
	__u8 nwords, npeeks, nhops, next_word;
	__u8 head; /* enum recipe_head */
	__u8 end_hop, end_shift;
	__u8 up; /* each node must lie above the one before */
	/*
	 * A register that holds the innermost node's position while it runs: kept when register
	 * reg_is_head holds the head (indices of struct user_regs of the architecture), else 0.
	 * reg_kept 0 and reg_is_head 0: none.
	 */
	__u8 reg_is_head, reg_kept;
	/*
	 * RECIPE_TP: the first so many hops lead to what unwinder.heads() tells for the thread,
	 * where the walk can begin as well; 0: they do not.
	 */
	__u8 thread_hops;
	/*
	 * RECIPE_ADDR: what lies there is the process's first thread's, others have no list. They
	 * must not be shown it: it is not theirs, and changes while it is read.
	 */
	__u8 first_thread;
	/*
	 * What one thread at a time does for the whole process, like collecting garbage: it is being
	 * done while byte `flag` has a bit of flag_mask, by whoever *(p + flag_hop) is, where p is
	 * *flag_owner[0], or if that is null *flag_owner[1]. The list's flag says whether that is the
	 * owner of the thread's first list (thread_hops). flag_mask 0: nothing is asked.
	 */
	__u8 flag_mask;
	__u8 pad;
	__s16 flag_hop;
	__u64 flag;          /* address */
	__u64 flag_owner[2]; /* addresses; 0: none */
};

_Static_assert(sizeof(struct recipe) == 144, "recipe is an ABI between two compilers");
