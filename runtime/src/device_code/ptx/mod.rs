//! Variables that PTX declares (PTX ISA, "Variable declarations").
//!
//! Only declarations at module scope matter: `.global` and `.const` outside all braces and parentheses. Bodies are
//! passed over by counting brackets, so instructions that are newer than this file do no harm. `.extern` declares what
//! is elsewhere, and textures, samplers and surfaces have no address.

mod declaration;
mod tokens;

use super::variable::Kind;
use super::{Defect, Found};
use tokens::{Token, Tokens};

/// Adds the variables of `text`, which has no zero byte.
pub(super) fn variables(text: &[u8], found: &mut Found) -> Result<(), Defect> {
    let mut tokens = Tokens::of(text);
    if tokens.next()? != Some(Token::Word(b".version")) {
        return Err(Defect::at(0, "neither PTX (which begins with .version), a cubin nor a fatbin"));
    }
    let mut depth = 0_u64;
    let mut elsewhere = false;
    while let Some(token) = tokens.next()? {
        match token {
            Token::Mark(b'{' | b'(') => depth += 1,
            Token::Mark(b'}' | b')') => depth = depth.checked_sub(1).ok_or_else(|| closes_nothing(&tokens))?,
            Token::Mark(b';') => elsewhere = false,
            Token::Word(b".extern") if depth == 0 => elsewhere = true,
            Token::Word(space @ (b".global" | b".const")) if depth == 0 => {
                let kind = if space == b".const" { Kind::Constant } else { Kind::Global };
                declaration::read(&mut tokens, kind, elsewhere, found)?;
                elsewhere = false;
            }
            _ => {}
        }
    }
    if depth > 0 { Err(Defect::at(text.len(), "it ends within a bracket")) } else { Ok(()) }
}

fn closes_nothing(tokens: &Tokens) -> Defect {
    Defect::at(tokens.at(), "a bracket closes that was not opened")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_code::variable::Variable;

    fn read(declarations: &str) -> Result<Vec<(String, Kind, Option<u64>)>, Defect> {
        let mut found = Found::default();
        let text = format!("// made\n.version 9.0\n.target sm_80, debug\n.address_size 64\n{declarations}");
        variables(text.as_bytes(), &mut found)?;
        let listed = found.into_variables().into_iter();
        Ok(listed.map(|Variable { name, kind, bytes }| (name, kind, bytes)).collect())
    }

    fn one(declarations: &str) -> (String, Kind, Option<u64>) {
        let mut all = read(declarations).unwrap();
        assert_eq!(all.len(), 1, "{declarations}: {all:?}");
        all.remove(0)
    }

    #[test]
    fn each_form_of_a_declaration_is_understood() {
        use Kind::{Constant, Global, Managed};
        let cases = [
            (".global .align 4 .u32 x;", Global, Some(4)),
            (".visible.global.align 8.f64 x;", Global, Some(8)),
            (".weak .global .align 4 .b8 x[12];", Global, Some(12)),
            (".common .global .b128 x[2];", Global, Some(32)),
            (".visible .const .align 16 .b8 x[3][0x10] = {1, {2, 3}, 4};", Constant, Some(48)),
            (".const[3] .u16 x[4U];", Constant, Some(8)),
            (".global .v4 .f32 x[2] = {{0f3F800000, 1.5, -1, 0}};", Global, Some(32)),
            (".global .attribute(.managed) .align 4 .b8 x[16];", Managed, Some(16)),
            (".global .attribute(.unified(1, 2), .managed) .u64 x;", Managed, Some(8)),
            (".global .attribute(.unified(1, 2)) .u64 x = generic(y)+8;", Global, Some(8)),
            (".global .b8 x[] = {1, 2};", Global, None),
            (".global .u32 x[2*3];", Global, None),
            (".global .e9m9 x;", Global, None),
            (".global .b64 x[0x2000000000000000][8];", Global, None),
            (".global .f16x2 x;", Global, Some(4)),
            (".global .b64 %x[2] = {0xFF(y), mask(z)};", Global, Some(16)),
        ];
        for (text, kind, bytes) in cases {
            let name = if text.contains('%') { "%x" } else { "x" };
            assert_eq!(one(text), (name.into(), kind, bytes), "{text}");
        }
    }

    #[test]
    fn one_declaration_may_have_several_names() {
        let names: Vec<_> = read(".global .u32 b[2] = {1, 2}, a = 3, c;").unwrap();
        assert_eq!(
            names,
            ["a", "b", "c"].map(|name| (name.into(), Kind::Global, Some(if name == "b" { 8 } else { 4 })))
        );
    }

    #[test]
    fn what_is_elsewhere_or_has_no_address_is_left_out() {
        let text = ".extern .global .u32 a;\n.extern .const .b8 b[];\n.global .texref t;\n.global .samplerref s = {x = 1};\n\
                    .extern .shared .b8 d[];\n.shared .u32 e;\n.global .surfref u;\n.global .u32 kept;";
        assert_eq!(one(text).0, "kept");
        let defined_later = ".extern .global .u32 x;\n.visible .global .u32 x = 1;";
        assert_eq!(one(defined_later).0, "x");
    }

    #[test]
    fn bodies_parameters_comments_strings_and_sections_are_passed_over() {
        let text = ".file 1 \"/tmp/.global .u32 s; // \\\" { \"\n/* .global .u32 c; \"{ */ // .global .u32 l;\n\
                    .extern .func (.param .b32 r) f (.param .u64 .ptr .global .align 8 p);\n\
                    .visible .entry k(.param .u64 .ptr .global .align 1 p) .maxntid 1, 1, 1 {\n\
                    .shared .u32 in; { ld.global.u32 %r1, [x]; st.const [y], 1; }\n}\n.global .u32 x;\n\
                    .section .debug_str { .b8 46 .global .u32 dwarf; }\n.pragma \"C:\\\";\n";
        assert_eq!(one(text).0, "x");
    }

    #[test]
    fn a_text_that_ends_too_early_is_refused() {
        for text in [
            ".global",
            ".global .u32",
            ".global .u32 x",
            ".global .u32 x[4",
            ".global .u32 x[2] = {1, 2",
            ".global .attribute(.managed",
            ".entry k() {",
            "/* never closed",
            "}",
            ".global .u32 x<3>;",
            ".global .u32 ;",
        ] {
            read(text).expect_err(text);
        }
        for text in ["", "hello", ".target sm_80", "// .version 9.0"] {
            variables(text.as_bytes(), &mut Found::default()).expect_err(text);
        }
    }
}
