/**
 * A mutant of the sources: one mistake, planted by replacing a piece of text, and the test that must fail for it.
 *
 * `npm run mutants` plants each in a copy of the tree and runs that test there; production code needs no seam for it.
 */
export interface SourceMutant {
  /** The promise that is broken, as a verb phrase: "commits although a statement is in flight". */
  readonly mutant: string
  /** The file to change, from the root of the repository: TypeScript or SQL. */
  readonly file: string
  /** Text that stands exactly once in that file. */
  readonly from: string
  readonly to: string
  readonly caughtBy: { readonly file: string; readonly test: string }
}
