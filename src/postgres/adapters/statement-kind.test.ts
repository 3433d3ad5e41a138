import { expect, test } from 'vitest'

import { returnsRows } from './statement-kind.ts'

test.each([
  'select 1',
  '  SELECT * from note for update',
  'values (1)',
  'insert into note values (1) returning id',
  'update note set text = $1\nRETURNING *',
  'with gone as (delete from note returning *) select * from gone',
  'with a as (select 1), b (x) as (select (2)) insert into note select * from a returning id',
  'with insert as (select 1) select * from insert',
  '-- insert\nselect 1',
  '/* update */ select 1',
  '(select 1) union (select 2)',
  'show statement_timeout',
  'explain select 1',
  `select ';' ; `,
  'call work()',
])('rows: %s', (text) => {
  expect(returnsRows(text)).toBe(true)
})

test.each([
  'insert into note values (1)',
  `insert into note values (1, 'returning')`,
  `insert into note values (1, e'it\\'s returning')`,
  `insert into "returning" values (1)`,
  'delete from note -- returning',
  'delete from note /* returning */',
  'update note set text = $$ returning $$',
  'update note set text = $a$ $$ returning $a$ where id = $1',
  'with gone as (delete from note returning *) update note set text = gone.text from gone',
  'with a as materialized (select 1) insert into note select * from a',
  'merge into note using other on true when matched then do nothing',
  'create table x (id int)',
  'create table y (a) as select 1',
  'create function f(int) returns int language sql as $$ select 1 $$',
  '-- a script\ncreate table x (id int); insert into x values (1); select 1',
  'create table x (id int) ; create view y as (select 1) select 2; select 3',
  'grant select (id) on note to reader',
  'set local lock_timeout = 1',
  'commit',
  '\n  UPDATE note set text = (select max(text) from note)',
])('a count: %s', (text) => {
  expect(returnsRows(text)).toBe(false)
})
