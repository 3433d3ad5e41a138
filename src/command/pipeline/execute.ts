/**
 * Doing: runs what was planned inside the transaction, children where their parent runs them, and collects the events.
 *
 * A child has no transaction of its own, so nothing of it alone can be undone: a child that fails is a failure of its parent,
 * whoever caught the error. And nothing begins, or is emitted, once `execute` has ended: it could miss the COMMIT.
 */
import { WaybillError } from '../../core/errors.ts'
import type { Tx } from '../../postgres/query/database.ts'
import { reportLate, runScope } from '../../postgres/transaction/tx-scope.ts'
import { aggregateKey, type LockedAggregate } from '../model/aggregate.ts'
import type { EmittedEvent, ExecuteContext, Planned } from '../model/command.ts'
import { validResponse, withOwnTime, type PlanNode } from './plan.ts'

/** What one attempt shares among the command and its children. */
export interface AttemptState {
  readonly attempt: number
  /** By `aggregateKey`. */
  readonly aggregates: ReadonlyMap<string, LockedAggregate>
  readonly emitted: EmittedEvent[]
  /** What this attempt gets of an input, a plan or metadata. */
  readonly handOut: <Value>(value: Value) => Value
}

/** How far a node's `execute` came with its children. */
interface Course {
  readonly ran: Set<Planned>
  readonly open: Set<Planned>
  failure?: { readonly error: unknown }
  isOver: boolean
}

/** Runs a node's `execute` and returns its response. It is a scope of the transaction: what it leaves under way fails it. */
export async function executePlan(tx: Tx, node: PlanNode, state: AttemptState): Promise<unknown> {
  const course: Course = { ran: new Set(), open: new Set(), isOver: false }
  try {
    return await runScope(tx, { who: node.definition.name }, async (own) => {
      const response = await node.definition.execute(own, state.handOut(node.plan), contextOf(own, { node, state, course }))
      assertChildrenDone(node, course)
      return response
    })
  } finally {
    course.isOver = true
  }
}

interface Execution {
  readonly node: PlanNode
  readonly state: AttemptState
  readonly course: Course
}

function contextOf(tx: Tx, { node, state, course }: Execution): ExecuteContext<unknown> {
  return {
    ...withOwnTime(node.request),
    metadata: state.handOut(node.request.metadata),
    input: state.handOut(node.input),
    attempt: state.attempt,
    get aggregate() {
      return aggregateOf(node, state)
    },
    emit: (type, aggregateId, ...[data, options]) => {
      if (course.isOver) throw tooLate(tx, node, `emitted ${type.name}`)
      state.emitted.push({ type, aggregateId, data, ...(options === undefined ? {} : { options }) })
    },
    run: <Response>(planned: Planned<Response>) => {
      const running = runChild(tx, { node, state, course }, planned)
      // Its parent fails with it, also where nobody awaits it: its error is never unheard.
      running.catch(() => undefined)
      return running as Promise<Response>
    },
  }
}

async function runChild(tx: Tx, { node, state, course }: Execution, planned: Planned): Promise<unknown> {
  try {
    if (course.isOver) throw tooLate(tx, node, `ran its child ${nameOf(planned)}`)
    const child = node.children.get(planned)
    if (child === undefined || course.ran.has(planned)) throw wrongChild(node, planned, child !== undefined)
    course.ran.add(planned)
    course.open.add(planned)
    return await validResponse(child.definition, await executePlan(tx, child, state))
  } catch (error) {
    course.failure ??= { error }
    throw error
  } finally {
    course.open.delete(planned)
  }
}

/** The first failure of a child is its parent's, and a child that is still under way would miss the COMMIT. */
function assertChildrenDone({ definition }: PlanNode, { failure, open }: Course): void {
  if (failure !== undefined) throw failure.error
  const [first] = open
  if (first === undefined) return
  throw new WaybillError(
    'INVALID_OPTION',
    `${definition.name} returned before its child ${nameOf(first)} ended, so it was rolled back. Is an await missing before run(…)?`,
  )
}

function aggregateOf(node: PlanNode, { aggregates }: AttemptState): LockedAggregate {
  const found = node.aggregate === undefined ? undefined : aggregates.get(aggregateKey(node.aggregate))
  if (found !== undefined) return found
  throw new WaybillError('INVALID_OPTION', `${node.definition.name} has no aggregate. Declare one: aggregate: (input) => …`)
}

function nameOf(planned: unknown): string {
  return String((planned as Partial<Planned> | undefined)?.command)
}

function tooLate(tx: Tx, { definition }: PlanNode, what: string): WaybillError {
  reportLate(tx, `${definition.name} ${what}`)
  return new WaybillError(
    'NOT_A_TRANSACTION',
    `${definition.name} ${what} after its execute had ended; nothing came of that. Is an await missing inside?`,
  )
}

function wrongChild(node: PlanNode, planned: unknown, isKnown: boolean): WaybillError {
  const name = nameOf(planned)
  return new WaybillError(
    'INVALID_OPTION',
    isKnown
      ? `${node.definition.name} ran its child ${name} twice in one attempt. Plan it twice if it is to happen twice.`
      : `${node.definition.name} ran a child ${name} that its own plan did not plan. Plan it with child(command, input).`,
  )
}
