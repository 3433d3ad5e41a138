/** Every kept mutant of the sources. */
import { budgetMutants } from './budget.ts'
import { canonMutants } from './canon.ts'
import { commandMutants } from './command.ts'
import { deadlineMutants } from './deadline.ts'
import { edgeMutants } from './edges.ts'
import { fateMutants } from './fate.ts'
import { forkMutants } from './fork.ts'
import { gateMutants } from './gate.ts'
import { httpMutants } from './http.ts'
import { readerMutants } from './readers.ts'
import { redactMutants } from './redact.ts'
import { roleMutants } from './roles.ts'
import { sessionMutants } from './session.ts'
import { signMutants } from './sign.ts'
import { transactionMutants } from './transaction.ts'
import type { SourceMutant } from './source-mutant.ts'

export const sourceMutants: readonly SourceMutant[] = [
  ...budgetMutants,
  ...canonMutants,
  ...commandMutants,
  ...deadlineMutants,
  ...edgeMutants,
  ...fateMutants,
  ...forkMutants,
  ...gateMutants,
  ...httpMutants,
  ...readerMutants,
  ...redactMutants,
  ...roleMutants,
  ...sessionMutants,
  ...signMutants,
  ...transactionMutants,
]
