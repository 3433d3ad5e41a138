/** For tests of waits that must have an end: a connection that dies without a word. */
import type { Queryable } from '../../src/postgres/query/database.ts'

/** A database that never answers the first statement that is meant, as over a connection that died unseen, and all the others. */
export function muteOnce(
  db: Queryable,
  isMeant: (text: string) => boolean,
): { readonly db: Queryable; readonly asked: Promise<void> } {
  const { promise: asked, resolve } = Promise.withResolvers<void>()
  let isMute = true
  return {
    asked,
    db: {
      query: async (text, values) => {
        if (!isMute || !isMeant(text)) return await db.query(text, values)
        isMute = false
        resolve()
        return await new Promise(() => undefined)
      },
    },
  }
}
