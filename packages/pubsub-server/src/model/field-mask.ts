/** Updates that change only what their mask names. */
import { invalid } from './rpc-error.ts'

export interface Update<Resource> {
  readonly current: Resource
  readonly patch: object
  readonly paths: readonly string[]
  /** Top-level fields (camelCase) that may be changed. */
  readonly changeable: ReadonlySet<string>
}

/** The resource after the update. A path whose value the patch leaves out clears that field. */
export function applyFieldMask<Resource extends object>(update: Update<Resource>): Resource {
  if (update.paths.length === 0)
    throw invalid('The update_mask in the request must be set, and must contain a non-empty paths list.')
  const result = structuredClone(update.current) as Record<string, unknown>
  for (const path of update.paths) {
    const steps = path.split('.').map(camelCase)
    const field = steps[0] as string
    if (!update.changeable.has(field)) {
      throw invalid(`Invalid update_mask provided in the request: '${path}' is not a field that can be changed.`)
    }
    setAt(result, update.patch as Record<string, unknown>, steps)
  }
  return result as Resource
}

function setAt(target: Record<string, unknown>, patch: Record<string, unknown>, steps: readonly string[]): void {
  const [step, ...rest] = steps
  if (step === undefined) return
  if (rest.length === 0) {
    if (patch[step] === undefined) delete target[step]
    else target[step] = patch[step]
    return
  }
  const inner = { ...(target[step] as Record<string, unknown> | undefined) }
  setAt(inner, (patch[step] ?? {}) as Record<string, unknown>, rest)
  target[step] = inner
}

function camelCase(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
}
