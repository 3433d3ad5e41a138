/**
 * Waits until every transaction has ended that is open now, be it one of the server's own workers': what is drawn after that has
 * all of them behind it.
 */
import type pg from 'pg'
import { expect } from 'vitest'
import { eventually } from '../../src/testing/kit/eventually.ts'

export async function everybodyEnded(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<{ id: string }>(`select pg_current_xact_id()::text as id`)
  const ended = `select pg_snapshot_xmin(pg_current_snapshot()) > $1::text::xid8 as ended`
  await eventually(async () => expect((await pool.query(ended, [rows[0]?.id])).rows).toEqual([{ ended: true }]))
}
