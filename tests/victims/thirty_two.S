/* A 32-bit program that waits until it is killed. */
	.globl _start
_start:
	movl $29, %eax
	int $0x80
	jmp _start
	.section .note.GNU-stack, "", @progbits
