/**
 * Deciding: validates, loads and plans a command and, through its plan, its children. Happens once per run.
 *
 * What was asked and decided is kept so that an attempt cannot leave traces in it for the next one (decided.ts). Children are planned
 * by the time that their parent's plan returns: their aggregates are locked with its own, and what is planned later would run
 * without.
 */
import { WaybillError } from '../../core/errors.ts'
import type { Random } from '../../core/service/random.ts'
import { describeIssues, type StandardSchema } from '../../core/encoding/standard-schema.ts'
import type { Database, Tx } from '../../postgres/query/database.ts'
import { chainOf } from '../../postgres/query/sql-state.ts'
import { transaction, type TransactionSettings } from '../../postgres/transaction/transaction.ts'
import { assertAggregate, type Aggregate } from '../model/aggregate.ts'
import type { Leave } from './gate.ts'
import {
  definitionOf,
  type AnyCommand,
  type CommandDefinition,
  type PlanContext,
  type Planned,
  type RequestContext,
} from '../model/command.ts'
import { createDecided, type Decided } from './decided.ts'
import { openCommand } from './open-command.ts'

/** A decided command with its decided children. */
export interface PlanNode {
  readonly definition: CommandDefinition
  readonly input: unknown
  readonly plan: unknown
  readonly aggregate: Aggregate | undefined
  readonly request: RequestContext
  /** How attempts get the input and the plan; one for the whole run. */
  readonly decided: Decided
  /** By the handles that the plan was given. */
  readonly children: ReadonlyMap<Planned, PlanNode>
  /** Why there is nothing to execute. It is the answer, once the marker is claimed. */
  readonly failure?: PlanFailure
}

export interface PlanFailure {
  readonly error: unknown
  /** It came out of the transaction of a `load`, where what looks like an outage may be one. A plan itself has no database. */
  readonly isOfLoad: boolean
}

/** What a command is to do, before that is decided. */
export interface PlanRequest {
  readonly definition: CommandDefinition
  readonly input: unknown
  readonly request: RequestContext
}

export interface PlanParts {
  readonly db: Database
  /** Takes the places that a connection for these aggregates needs. */
  readonly enter: (aggregates: readonly Aggregate[]) => Leave | Promise<Leave>
  readonly random: Random
  /** Of the transaction of `load`, which is read only: a load that writes would be an effect outside the pipeline. */
  readonly loading: TransactionSettings
}

/** Decides what a command with a valid input will do. */
export async function planCommand(
  parts: PlanParts,
  { definition, input, request }: PlanRequest,
  decided: Decided = createDecided(),
): Promise<PlanNode> {
  decided.keepInput(input)
  const aggregate = definition.aggregate?.(input)
  if (aggregate !== undefined) assertAggregate(aggregate)
  const loaded = await load(parts, { definition, input, request, aggregate })
  const brood: Brood = { children: new Map(), open: new Set(), isOver: false }
  const context: PlanContext<unknown> = {
    ...withOwnTime(request),
    loaded,
    random: parts.random,
    child: (command, childInput, { metadata } = {}) => {
      const childRequest = { ...request, metadata: decided.keepInput(metadata) }
      const asked = { command, input: childInput, request: childRequest }
      const planning = planChild(parts, { parent: definition, brood, decided }, asked)
      // Its parent fails with it, also where nobody awaits it: its error is never unheard.
      planning.catch(() => undefined)
      return planning
    },
  }
  try {
    const plan = await definition.plan(input, context)
    assertAllPlanned(definition, brood)
    decided.keepPlan(definition.name, plan)
    return { definition, input, plan, aggregate, request, decided, children: brood.children }
  } finally {
    brood.isOver = true
  }
}

/** How far a plan came with its children. */
interface Brood {
  readonly children: Map<Planned, PlanNode>
  readonly open: Set<Planned>
  failure?: { readonly error: unknown }
  isOver: boolean
}

interface ParentPlan {
  readonly parent: CommandDefinition
  readonly brood: Brood
  readonly decided: Decided
}

async function planChild(
  parts: PlanParts,
  { parent, brood, decided }: ParentPlan,
  { command, input, request }: { readonly command: AnyCommand; readonly input: unknown; readonly request: RequestContext },
): Promise<Planned<never>> {
  const handle: Planned<never> = Object.freeze({ command: String(command?.name) })
  try {
    if (brood.isOver) throw misplanned(`${parent.name} planned its child ${handle.command} after its plan had ended`)
    brood.open.add(handle)
    const definition = definitionOf(command)
    const valid = await validInput(definition, input)
    brood.children.set(handle, await planCommand(parts, { definition, input: valid, request }, decided))
    return handle
  } catch (error) {
    brood.failure ??= { error }
    throw error
  } finally {
    brood.open.delete(handle)
  }
}

/** The first failure of a child is its parent's, and one that is still open would run without its lock. */
function assertAllPlanned({ name }: CommandDefinition, { failure, open }: Brood): void {
  if (failure !== undefined) throw failure.error
  const [first] = open
  if (first !== undefined) throw misplanned(`The plan of ${name} returned before its child ${first.command} was planned`)
}

function misplanned(what: string): WaybillError {
  return new WaybillError('INVALID_OPTION', `${what}; nothing was executed. Is an await missing before child(…)?`)
}

/** In place of a plan that could not be made, or was rejected: locks nothing, executes nothing, and only asks for the marker. */
export function failedPlan({ definition, input, request }: PlanRequest, error: unknown): PlanNode {
  const failure = { error, isOfLoad: [...chainOf(error)].some((each) => ofLoads.has(each)) }
  const decided = createDecided()
  return { definition, input, request, decided, plan: undefined, aggregate: undefined, children: new Map(), failure }
}

/** The input as its schema returns it, or INVALID_INPUT. */
export async function validInput(definition: CommandDefinition, input: unknown): Promise<unknown> {
  return await valid(definition.input, input, `${definition.name}: the input does not fit its schema`)
}

/** The response as its schema returns it; one that does not fit is a defect of `execute`. */
export async function validResponse(definition: CommandDefinition, response: unknown): Promise<unknown> {
  if (definition.response === undefined) return response
  return await valid(definition.response, response, `${definition.name}: the response does not fit its schema`)
}

/** A node and all that hangs below it. */
export function* allNodes(node: PlanNode): Generator<PlanNode> {
  yield node
  for (const child of node.children.values()) yield* allNodes(child)
}

/** All aggregates of the tree. */
export function aggregatesIn(node: PlanNode): Aggregate[] {
  return [...allNodes(node)].flatMap(({ aggregate }) => aggregate ?? [])
}

async function valid(schema: StandardSchema, value: unknown, complaint: string): Promise<unknown> {
  const result = await schema['~standard'].validate(value)
  if (result.issues === undefined) return result.value
  throw new WaybillError('INVALID_INPUT', `${complaint}: ${describeIssues(result.issues)}`)
}

/** What came out of loads, wherever it goes on its way through plans, and whatever they wrap it in. */
const ofLoads = new WeakSet<object>()

async function load(
  { db, loading, enter }: PlanParts,
  { definition, input, request, aggregate }: PlanRequest & { readonly aggregate: Aggregate | undefined },
): Promise<unknown> {
  const { name, load: reader } = definition
  if (reader === undefined) return undefined
  const leave = await enter(aggregate === undefined ? [] : [aggregate])
  const open = openCommand(db, name)
  const read = (tx: Tx): Promise<unknown> => open.inside(async () => await reader(tx, input, withOwnTime(request)))
  try {
    return await transaction(db, read, loading)
  } catch (error) {
    if (typeof error === 'object' && error !== null) ofLoads.add(error)
    throw error
  } finally {
    open.ended()
    leave()
  }
}

/** A Date cannot be frozen: whoever gets it gets one that nobody else has. */
export function withOwnTime(request: RequestContext): RequestContext {
  return { ...request, now: new Date(request.now) }
}
