/**
 * Doing: runs what was planned inside the transaction, children where their parent runs them, and collects the events.
 */
import { WaybillError } from '../core/errors.ts'
import type { Tx } from '../postgres/database.ts'
import { aggregateKey, type LockedAggregate } from './aggregate.ts'
import type { EmittedEvent } from './command-outbox.ts'
import type { ExecuteContext, Planned } from './command.ts'
import { validResponse, type PlanNode } from './plan-command.ts'

/** What one attempt shares among the command and its children. */
export interface AttemptState {
  readonly attempt: number
  /** By `aggregateKey`. */
  readonly aggregates: ReadonlyMap<string, LockedAggregate>
  readonly emitted: EmittedEvent[]
}

/** Runs a node's `execute` and returns its response. */
export async function executePlan(tx: Tx, node: PlanNode, state: AttemptState): Promise<unknown> {
  const ran = new Set<Planned>()
  const context: ExecuteContext<unknown> = {
    ...node.request,
    input: node.input,
    attempt: state.attempt,
    get aggregate() {
      return aggregateOf(node, state)
    },
    emit: (type, aggregateId, ...[data, options]) => {
      state.emitted.push({ type, aggregateId, data, ...(options === undefined ? {} : { options }) })
    },
    run: async <Response>(planned: Planned<Response>) => {
      const child = node.children.get(planned)
      if (child === undefined || ran.has(planned)) throw wrongChild(node, planned, child !== undefined)
      ran.add(planned)
      return (await validResponse(child.definition, await executePlan(tx, child, state))) as Response
    },
  }
  return await node.definition.execute(tx, node.plan, context)
}

function aggregateOf(node: PlanNode, { aggregates }: AttemptState): LockedAggregate {
  const found = node.aggregate === undefined ? undefined : aggregates.get(aggregateKey(node.aggregate))
  if (found !== undefined) return found
  throw new WaybillError('INVALID_OPTION', `${node.definition.name} has no aggregate. Declare one: aggregate: (input) => …`)
}

function wrongChild(node: PlanNode, planned: unknown, isKnown: boolean): WaybillError {
  const name = String((planned as Partial<Planned> | undefined)?.command)
  return new WaybillError(
    'INVALID_OPTION',
    isKnown
      ? `${node.definition.name} ran its child ${name} twice in one attempt. Plan it twice if it is to happen twice.`
      : `${node.definition.name} ran a child ${name} that its own plan did not plan. Plan it with child(command, input).`,
  )
}
