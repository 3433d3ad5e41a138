/** Every kept mutant of the sources. */
import type { SourceMutant } from './source-mutant.ts'

export const sourceMutants: readonly SourceMutant[] = []
