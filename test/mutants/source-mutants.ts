/** Every kept mutant of the sources. */
import { canonMutants } from './canon.ts'
import { commandMutants } from './command.ts'
import { fateMutants } from './fate.ts'
import { forkMutants } from './fork.ts'
import { redactMutants } from './redact.ts'
import { roleMutants } from './roles.ts'
import { sessionMutants } from './session.ts'
import { transactionMutants } from './transaction.ts'
import type { SourceMutant } from './source-mutant.ts'

export const sourceMutants: readonly SourceMutant[] = [
  ...canonMutants,
  ...commandMutants,
  ...fateMutants,
  ...forkMutants,
  ...redactMutants,
  ...roleMutants,
  ...sessionMutants,
  ...transactionMutants,
]
