/**
 * Compares types for the tests that are compiled and never run.
 */

/** `true` only if neither type can be told from the other; `any` is the same as itself alone. */
export type SameType<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false

/** Does not compile unless the types are the same. */
export declare function sameType<A, B>(...proof: SameType<A, B> extends true ? [] : [never]): void
