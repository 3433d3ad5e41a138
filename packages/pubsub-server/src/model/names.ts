/** Resource names, as Google documents them: 3 to 255 characters, a letter first, no `goog` at the start. */
import { invalid } from './rpc-error.ts'

export type ResourceKind = 'topics' | 'subscriptions' | 'snapshots' | 'schemas'

const idPattern = /^[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}$/
const labelKey = /^[\p{Ll}\p{Lo}][\p{Ll}\p{Lo}\p{N}_-]{0,62}$/u
const labelValue = /^[\p{Ll}\p{Lo}\p{N}_-]{0,63}$/u

/** Throws unless `name` is `projects/<project>/<kind>/<id>` with an id one may create. */
export function checkName(kind: ResourceKind, name: string): void {
  const [projects, project, collection, id, ...rest] = name.split('/')
  const isWellFormed =
    projects === 'projects' && project !== undefined && project !== '' && collection === kind && rest.length === 0
  if (!isWellFormed || id === undefined || !idPattern.test(id) || id.toLowerCase().startsWith('goog')) {
    throw invalid(`Invalid [${kind}] name: (name=${name}). Use projects/<project>/${kind}/<id>; an id has 3 to 255 characters.`)
  }
}

/** The project part of `projects/<project>`, or throws. */
export function checkProject(name: string): string {
  if (!/^projects\/[^/]+$/.test(name)) throw invalid(`Invalid project name: (name=${name}). Use projects/<project>.`)
  return name
}

/** Whether a resource belongs to a project. */
export function isIn(project: string, name: string): boolean {
  return name.startsWith(`${project}/`)
}

export function checkLabels(labels: Readonly<Record<string, string>> | undefined): void {
  const entries = Object.entries(labels ?? {})
  if (entries.length > 64) throw invalid(`A resource has at most 64 labels; this one has ${entries.length}.`)
  for (const [key, value] of entries) {
    if (!labelKey.test(key) || !labelValue.test(value)) {
      throw invalid(`Invalid label ${key}=${value}: lower-case letters, digits, _ and -, at most 63 characters.`)
    }
  }
}
