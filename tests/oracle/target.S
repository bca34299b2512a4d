/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target of the unwinding oracle: frames that compilers seldom make and hand-written code does.
 * Every function is called from main between two int3.
 */
	.text

	.type leaf, @function
leaf:
	.cfi_startproc
	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	mov %rdi, %rbx
	lea (%rbx,%rbx), %rax
	pop %rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	ret
	.cfi_endproc
	.size leaf, . - leaf

/* The caller's stack pointer is kept in the frame: CFA = *(rsp + 24) + 8. */
	.type saved_rsp, @function
saved_rsp:
	.cfi_startproc
	mov %rsp, %rax
	.cfi_def_cfa_register %rax
	push %rbx
	.cfi_offset %rbx, -16
	sub $96, %rsp
	and $-64, %rsp
	mov %rax, 24(%rsp)
	.cfi_escape 0x0f, 0x05, 0x77, 0x18, 0x06, 0x23, 0x08
	call leaf
	mov 24(%rsp), %rsi
	.cfi_def_cfa %rsi, 8
	mov -8(%rsi), %rbx
	.cfi_restore %rbx
	lea (%rsi), %rsp
	.cfi_def_cfa_register %rsp
	ret
	.cfi_endproc
	.size saved_rsp, . - saved_rsp

/* The same at a variable place: CFA = *(rsp + rcx * 8 + 8) + 8. */
	.type scaled, @function
scaled:
	.cfi_startproc
	mov %rsp, %rax
	.cfi_def_cfa_register %rax
	sub $128, %rsp
	mov $5, %ecx
	mov %rax, 8(%rsp,%rcx,8)
	.cfi_escape 0x0f, 0x0b, 0x77, 0x08, 0x72, 0x00, 0x08, 0x08, 0x1e, 0x22, 0x06, 0x23, 0x08
	nop
	lea (%rcx), %rcx
	nop
	mov 8(%rsp,%rcx,8), %rsp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size scaled, . - scaled

/* The return address leaves the stack for a register, as in vfork. */
	.type ra_in_register, @function
ra_in_register:
	.cfi_startproc
	pop %r11
	.cfi_adjust_cfa_offset -8
	.cfi_register %rip, %r11
	nop
	nop
	push %r11
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rip, 0
	ret
	.cfi_endproc
	.size ra_in_register, . - ra_in_register

/* Frame pointer in a register, and pushed with its flags around it. */
	.type fp_in_register, @function
fp_in_register:
	.cfi_startproc
	pushfq
	.cfi_adjust_cfa_offset 8
	mov %rbp, %r9
	.cfi_register %rbp, %r9
	mov $77, %ebp
	nop
	mov %r9, %rbp
	.cfi_restore %rbp
	popfq
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size fp_in_register, . - fp_in_register

/* Takes an argument off its caller's stack. */
	.type pops_argument, @function
pops_argument:
	.cfi_startproc
	enter $32, $0
	.cfi_def_cfa %rbp, 16
	.cfi_offset %rbp, -16
	call leaf
	leave
	.cfi_def_cfa %rsp, 8
	.cfi_restore %rbp
	ret $16
	.cfi_endproc
	.size pops_argument, . - pops_argument

/* No table covers these two; the first keeps a frame pointer, the second is a leaf. */
	.type bare, @function
bare:
	push %rbp
	mov %rsp, %rbp
	call leaf
	call leaf
	pop %rbp
	ret
	.size bare, . - bare

	.type bare_leaf, @function
bare_leaf:
	lea 1(%rdi), %rax
	ret
	.size bare_leaf, . - bare_leaf

/* The last instruction is a call; what follows is another function with another frame. */
	.type ends_in_call, @function
ends_in_call:
	.cfi_startproc
	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	sub $48, %rsp
	.cfi_adjust_cfa_offset 48
	call does_not_return
	.cfi_endproc
	.size ends_in_call, . - ends_in_call

	.type does_not_return, @function
does_not_return:
	.cfi_startproc
	sub $8, %rsp
	.cfi_adjust_cfa_offset 8
	call leaf
	add $72, %rsp /* its own frame, and that of ends_in_call with rbx */
	.cfi_adjust_cfa_offset -8
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size does_not_return, . - does_not_return

	.globl main
	.type main, @function
main:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register %rbp
	mov $3, %edi
	int3
	call leaf
	call saved_rsp
	call scaled
	call ra_in_register
	call fp_in_register
	sub $16, %rsp
	call pops_argument
	call bare
	call bare_leaf
	call ends_in_call
	int3
	xor %eax, %eax
	pop %rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size main, . - main

	.section .note.GNU-stack, "", @progbits
