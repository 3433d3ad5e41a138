/** Every kept mutant of the sources. */
import { budgetMutants } from './budget.ts'
import { canonMutants } from './canon.ts'
import { commandMutants } from './command.ts'
import { fateMutants } from './fate.ts'
import { forkMutants } from './fork.ts'
import { redactMutants } from './redact.ts'
import { sessionMutants } from './session.ts'
import { transactionMutants } from './transaction.ts'
import type { SourceMutant } from './source-mutant.ts'

export const sourceMutants: readonly SourceMutant[] = [
  ...budgetMutants,
  ...canonMutants,
  ...commandMutants,
  ...fateMutants,
  ...forkMutants,
  ...redactMutants,
  ...sessionMutants,
  ...transactionMutants,
]
